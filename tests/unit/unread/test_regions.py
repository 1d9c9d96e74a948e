"""Which pages are missing, against a table of single bytes."""

import random

from emu.unread.regions import Region, Regions

END = 64


class Bytes:
    """A table of what each byte is filled with: a number and a place in it, or nothing."""

    def __init__(self):
        self.of = [None] * END

    def put(self, start, end, number):
        self.of[start:end] = [(number, at - start) for at in range(start, end)]

    def cut(self, start, end):
        self.of[start:end] = [None] * (end - start)

    def move(self, start, to, nbytes):
        moved = self.of[start : start + nbytes]
        self.cut(start, start + nbytes)
        for at, what in enumerate(moved):
            if what is not None:
                self.of[to + at] = what


def listed(regions, start, end):
    of = [None] * END
    for region in regions.within(start, end):
        assert start <= region.start < region.end <= end
        for at in range(region.start, region.end):
            assert of[at] is None
            of[at] = (region.number, region.offset + at - region.start)
    return of[start:end]


def test_regions_are_what_single_bytes_say():
    rng = random.Random(5)
    for _ in range(200):
        regions, expected = Regions(), Bytes()
        for number in range(1, 25):
            start, end = sorted(rng.sample(range(END + 1), 2))
            match rng.randrange(4):
                case 0 | 1:
                    regions.put(Region(start, end, number, 0, None))
                    expected.put(start, end, number)
                case 2:
                    regions.cut(start, end)
                    expected.cut(start, end)
                case 3:
                    to = rng.randrange(END - (end - start) + 1)
                    if to + end - start <= start or end <= to:  # mremap(2) moves to memory apart from it
                        regions.move(start, to, end - start)
                        expected.move(start, to, end - start)
            first, last = sorted(rng.sample(range(END + 1), 2))
            assert listed(regions, first, last) == expected.of[first:last]
            assert listed(regions.copy(), 0, END) == expected.of


def test_a_number_is_gone_with_its_last_piece_and_told_once():
    regions = Regions()
    regions.put(Region(0, 30, 1, 0, None))
    regions.put(Region(40, 50, 2, 0, None))
    regions.cut(10, 20)
    assert regions.gone == []
    regions.cut(0, 10)
    regions.put(Region(20, 45, 3, 0, None))
    assert regions.gone == [1]
    regions.cut(0, 100)
    assert sorted(regions.gone) == [1, 2, 3]
