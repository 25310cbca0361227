"""Make the picture of the report at the top of the README.

    python benchmarks/report_picture.py augmask-demo/report.html docs/report.png

Takes a screenshot of some sections of a report in headless Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1280, 1568
MAX_BYTES = 300_000
SECTIONS = ("verdict", "columns")


def screenshot(page: Path) -> Image.Image:
    """Return a screenshot of the header and `SECTIONS` of a page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise SystemExit(f"no browser found: install one of {', '.join(BROWSERS)}")
    others = "".join(f":not(#{section})" for section in SECTIONS)
    style = f"<style>section{others} {{ display: none }}</style></head>"
    with tempfile.TemporaryDirectory() as folder:
        short, target = Path(folder) / "page.html", Path(folder) / "page.png"
        short.write_text(page.read_text().replace("</head>", style, 1))
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--hide-scrollbars",
                "--disable-gpu",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={target}",
                short.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
        return Image.open(target).convert("RGB")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    a = parser.parse_args()
    screenshot(a.page).quantize(96).save(a.out, optimize=True)
    size = a.out.stat().st_size
    print(f"{a.out}: {size / 1000:.0f} kB")
    if size > MAX_BYTES:
        raise SystemExit(f"{a.out} is larger than {MAX_BYTES / 1000:.0f} kB")


if __name__ == "__main__":
    main()
