from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure

from augmask.report.aggregates import Bars, Histogram
from augmask.report.plots import bars_figure, histogram_figure
from augmask.report.svg import REAL, VARIABLES, svg

LABELS = ("$x_1$", "<script>alert(1)</script>", 'a "quote" & more', "🦊", "naïve")


def picture() -> str:
    shares = {k: np.full(5, 0.2) for k in ("real", "synthetic", "remasked")}
    return svg(bars_figure(Bars(LABELS, shares)), 'of <b> & "c"', "p7")


def test_odd_texts_stay_texts():
    tree = ElementTree.fromstring(picture())
    texts = [node.text for node in tree.iter() if node.tag.endswith("text")]
    assert [text for text in texts if text in LABELS] == list(LABELS)
    assert not [node for node in tree.iter() if node.tag.endswith("script")]
    assert tree.get("aria-label") == 'of <b> & "c"'


def test_colours_are_left_to_the_page():
    text = picture()
    assert not [colour for colour in VARIABLES if colour in text]
    for name in ("real", "synthetic", "remasked"):
        assert f"var(--{name})" in text


def test_ids_are_prefixed_and_all_references_resolve():
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([0, 1, 0], marker="o", color=REAL)
    text = svg(figure, "", "p3")
    ids = re.findall(r'\bid="([^"]+)"', text)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', text)
    assert used
    assert set(used) <= set(ids)
    assert all(name.startswith("p3-") for name in ids)


def test_images_fill_their_axes():
    figure = Figure(figsize=(3, 2))
    ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.imshow(np.ones((3, 97, 4)), interpolation="none", aspect="auto")
    image = next(
        n
        for n in ElementTree.fromstring(svg(figure, "", "p")).iter()
        if n.tag.endswith("image")
    )
    stretch = re.search(r"matrix\(([-\d.]+)", image.get("transform") or "")
    width = float(image.get("width") or 0) * (float(stretch[1]) if stretch else 1)
    assert abs(width - 216) < 0.5


def test_the_same_figure_gives_the_same_short_text_and_no_setting_changes():
    before = rcParams["svg.fonttype"]
    column = Histogram(np.arange(37.0), {"real": np.full(36, 1 / 36)})
    first, second = (svg(histogram_figure(column), "h", "p1") for _ in range(2))
    assert first == second
    assert len(first) < 3_500
    assert rcParams["svg.fonttype"] == before
