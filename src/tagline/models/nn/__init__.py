"""What the torch families share: devices, tokens, batches, networks, the training loop."""
