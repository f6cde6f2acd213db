"""The emulated APIs: their methods, messages, HTTP rules and errors, as Google's libraries describe them."""
