from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.catalog.ocr import pipeline
from circinus.pipelines.catalog.ocr.page import (
    ENGINES,
    HEIGHT,
    WIDTH,
    UInt8Array,
    checked_page,
    checked_scaled_page,
    cleaned,
    noise_level,
    page_features,
    read,
    resized,
)
from circinus.pipelines.catalog.ocr.scans import FONTS, MARGIN, all_lines, draw_scan
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.model.payload import Payload

pytestmark = pytest.mark.skipif(
    bool(pipeline().available()), reason="needs the extra ocr and Debian's engines and fonts"
)

LINES = ["The quick brown fox jumps", "over the lazy dog again"]


def flat(height: int, width: int, grey: int = 200) -> UInt8Array:
    return np.full((height, width), grey, np.uint8)


def drawn(*lines: str, size: int) -> UInt8Array:
    """A page without a flaw."""
    from PIL import Image, ImageDraw, ImageFont

    canvas = Image.new("L", (WIDTH, HEIGHT), 255)
    font = ImageFont.truetype(FONTS[3], size)
    ImageDraw.Draw(canvas).multiline_text((MARGIN, 30), "\n".join(lines), 0, font=font)
    return np.asarray(canvas, dtype=np.uint8)


def noisy(page: UInt8Array, sigma: float) -> UInt8Array:
    noise = np.random.default_rng(5).normal(0, sigma, page.shape)
    return np.clip(np.rint(page + noise), 0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "page",
        b"",
        flat(0, 0),
        flat(16, 16)[0],
        flat(16, 16).astype(float),
        flat(32, 32)[None],
    ],
)
def test_what_is_no_grey_page_is_refused(wrong: Payload) -> None:
    for operator, knobs in (
        ("sampler", {"scale": 1.0}),
        ("cleaner", {"kind": "none"}),
        ("reader", {"engine": "ocrad"}),
    ):
        with pytest.raises(InvalidInput, match=r"page must be a uint8 array \(height, width\)"):
            pipeline().by_name[operator].run(wrong, knobs)


def test_a_page_has_16_to_2048_pixels_a_side() -> None:
    for height, width in ((15, 680), (680, 15), (2049, 16), (16, 2049)):
        with pytest.raises(InvalidInput, match="of 16 to 2048 pixels a side, got 'uint8 array"):
            checked_page(flat(height, width))
    assert checked_page(flat(16, 2048)).shape == (16, 2048)


def test_a_scaled_page_has_8_to_3072_pixels_a_side() -> None:
    for height, width in ((7, 680), (8, 3073)):  # half of 16, one and a half times 2048
        with pytest.raises(InvalidInput, match="of 8 to 3072 pixels a side"):
            checked_scaled_page(flat(height, width))
    assert checked_scaled_page(flat(8, 3072)).shape == (8, 3072)


def test_a_way_to_clean_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"kind must be one of none, median, .*, got 'magic'"):
        pipeline().by_name["cleaner"].run(flat(16, 16), {"kind": "magic"})


def test_an_engine_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"engine must be one of ocrad, gocr, .*, got 'magic'"):
        pipeline().by_name["reader"].run(flat(16, 16), {"engine": "magic"})


@pytest.mark.parametrize("wrong", [None, 7, ["text"], "x" * 100_001])
def test_a_reading_that_is_no_text_of_some_length_is_refused(wrong: Payload) -> None:
    with pytest.raises(OperatorFailed, match="output must be text of at most 100000 characters"):
        pipeline().score_of(wrong, "text")


def test_nothing_to_read_cannot_be_scored() -> None:
    with pytest.raises(OperatorFailed, match="expected must not be blank"):
        pipeline().score_of("text", " \n")


def test_the_grid_has_80_configurations() -> None:
    assert np.prod([len(slot.knob.values) for slot in pipeline().graph.slots]) == 80


@pytest.mark.parametrize(
    ("output", "score"),
    [
        ("abcd efghi", 1.0),
        (" abcd\n\n efghi\n\f", 1.0),  # white space of any kind is a space
        ("abcd efgh", 0.9),  # 1 edit on 10 characters
        ("abxd efg i", 0.8),  # 2 edits
        ("abcdefghi!?", 0.7),  # the space is lost, two characters are added
        ("", 0.0),
        ("0123456789 0123456789", 0.0),  # more edits than characters: not below 0
    ],
)
def test_the_score_is_one_less_the_edits_per_character(output: str, score: float) -> None:
    assert pipeline().score_of(output, "abcd\nefghi") == pytest.approx(score)


@given(st.lists(st.integers(0, 255), min_size=4, max_size=4))
def test_at_half_scale_a_block_becomes_its_mean(block: list[int]) -> None:
    page = np.array(block, np.uint8).reshape(2, 2)
    assert abs(resized(page, scale=0.5).item() - np.mean(block)) <= 0.5


@pytest.mark.parametrize(
    ("scale", "shape"),
    [(0.5, (70, 340)), (0.75, (105, 510)), (1.0, (140, 680)), (1.5, (210, 1020))],
)
def test_the_sampler_gives_a_page_of_that_scale(scale: float, shape: tuple[int, int]) -> None:
    page = resized(flat(140, 680, 123), scale=scale)
    assert page.shape == shape
    assert (page == 123).all()


@pytest.mark.parametrize("kind", ["none", "median", "nlm"])
def test_flat_paper_has_nothing_to_clean(kind: str) -> None:
    assert (cleaned(flat(40, 60), kind=kind) == 200).all()


def test_the_median_removes_single_specks() -> None:
    page = flat(40, 60)
    page[5::6, 5::6] = 0
    assert (cleaned(page, kind="median") == 200).all()


def test_otsu_cuts_between_ink_and_paper() -> None:
    page = flat(40, 60)
    page[10:20, 10:50] = 60
    assert (cleaned(page, kind="otsu") == np.where(page == 60, 0, 255)).all()


def test_in_a_shadow_only_the_adaptive_threshold_tells_ink_from_paper() -> None:
    paper = np.tile(np.linspace(240, 80, 160), (40, 1))
    ink = np.zeros(paper.shape, bool)
    ink[18:22, 4::8] = True  # four pixels high, one wide: well below the window
    page = np.where(ink, paper * 0.4, paper).astype(np.uint8)
    assert ((cleaned(page, kind="adaptive") == 0) == ink).all()
    assert not ((cleaned(page, kind="otsu") == 0) == ink).all()


def test_non_local_means_take_noise_from_paper_and_leave_edges() -> None:
    clean = flat(60, 120)
    clean[20:40, 30:90] = 40
    page = noisy(clean, 15)
    quieter = cleaned(page, kind="nlm").astype(float) - clean
    assert np.abs(quieter).mean() < np.abs(page.astype(float) - clean).mean() / 2
    assert np.abs(quieter[20:40, 30:32]).mean() < 15  # an edge of 160 grey levels


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_reads_a_page_without_flaws(engine: str) -> None:
    page = drawn(*LINES, size=30)
    assert pipeline().score_of(read(page, engine=engine), "\n".join(LINES)) > 0.95


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", [(8, 8), (140, 680)])
def test_on_an_empty_page_there_is_nothing_to_read(engine: str, shape: tuple[int, int]) -> None:
    assert read(flat(*shape), engine=engine).strip() == ""


def test_an_enlarged_page_lets_tesseract_read_small_letters() -> None:
    page = resized(drawn(*LINES, size=16), scale=0.5)
    score = pipeline().score_of
    text = "\n".join(LINES)
    assert score(read(page, engine="tess6x2"), text) >= score(read(page, engine="tess6"), text)


def test_the_noise_level_is_the_deviation_of_the_noise() -> None:
    assert noise_level(flat(140, 680)) == 0
    # 47,530 differences: their median absolute value is known to about 1 %
    assert noise_level(noisy(flat(140, 680, 128), 20)) == pytest.approx(20, rel=0.05)


def test_features_tell_shadow_specks_and_rows_of_text() -> None:
    page = flat(40, 160)
    page[:, 80:] = 100  # half of the page in shadow
    page[10:20, :] = 0  # a quarter of the rows is black
    # noise, brightness, shadow (200 above the black block, 0 nowhere: rows 10-19 are block 1),
    # share of black and white, share of dark rows
    assert page_features(page) == pytest.approx([0, 112.5, 200, 0.25, 0.25])


def test_lines_are_prose_and_no_line_comes_twice() -> None:
    lines = all_lines()
    assert len(lines) > 1000
    assert len(set(lines)) == len(lines)
    assert all(line == " ".join(line.split()) and line.isascii() for line in lines)


def test_a_page_says_starts_of_lines_of_its_part() -> None:
    part = part_of(all_lines(), 4)
    rng = np.random.default_rng(4)
    for _ in range(3):
        said = str(draw_scan(rng, part).expected).split("\n")
        assert len(said) == 2
        assert all(any(line.startswith(start) for line in part) for start in said)


def test_a_long_line_is_cut_to_the_words_that_fit() -> None:
    scan = draw_scan(np.random.default_rng(1), ["word " * 100])
    assert checked_page(scan.input).shape == (140, WIDTH)
    for line in str(scan.expected).split("\n"):
        # the narrowest font needs over 5 pixels for a letter of the smallest size
        assert 1 < len(line.split()) < (WIDTH - 2 * MARGIN) / 5 / 5


def test_larger_and_cleaner_pages_are_read_better_than_small_ones() -> None:
    make = pipeline().examples
    assert make is not None

    def mean_score(scale: float, kind: str, engine: str) -> float:
        pages = [(e.input, e.expected) for e in make(12, 2).examples]
        texts = [
            read(cleaned(resized(checked_page(page), scale=scale), kind=kind), engine=engine)
            for page, _ in pages
        ]
        scored = zip(texts, pages, strict=True)
        return float(np.mean([pipeline().score_of(text, shown) for text, (_, shown) in scored]))

    # About .8 and .05 over many pages; at 12 the standard error of the difference is about .1.
    assert mean_score(0.75, "nlm", "tess6") > mean_score(0.5, "median", "ocrad") + 0.3
