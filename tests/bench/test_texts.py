from __future__ import annotations

from kakeya_ops.bench.texts import Texts, counting_text


def test_no_two_are_alike_from_the_start() -> None:
    texts = Texts()
    assert texts.make(100)[:32] != texts.make(100)[:32]
    assert counting_text()[:32] != counting_text()[:32]


def test_it_learns_how_long_a_word_is() -> None:
    texts = Texts()
    text = texts.make(600)
    texts.learn(text, len(text))
    assert abs(len(texts.make(600)) - 600) < 60
    assert abs(len(texts.make(6000)) - 6000) < 600


def test_it_learns_nothing_from_texts_of_others() -> None:
    texts = Texts()
    texts.learn("a text of somebody else", 10_000)
    assert len(texts.make(600).split()) > 250
