"""python -m tagline: what every place runs."""

from tagline.cli import main

if __name__ == "__main__":
    main()
