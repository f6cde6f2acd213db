"""The emulator's own page, and the API that it reads."""
