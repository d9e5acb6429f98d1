"""`python -m tabiced.bench`."""

from tabiced.bench.command import main

if __name__ == "__main__":
    main()
