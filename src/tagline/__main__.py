"""Entry point of `python -m tagline`, which every place to run uses."""

from tagline.cli import main

if __name__ == "__main__":
    main()
