"""Reads a description of a cluster in words: "16 nodes of 8 x H100 SXM, 8 x 400 Gb/s InfiniBand, rail-optimised, 2:1 at
the spine".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiles.errors import ProfileError
from profiles.sources.facts import Fact, Facts

_GPUS = (
    # The longer names first: "H100 PCIe" is not an H100 on a baseboard. What has no description takes the nearest one.
    (r"gb\s*300", "gb300", ""),
    (r"gb\s*200", "gb200", ""),
    (r"gh\s*200", "gh200", ""),
    (r"b\s*300|blackwell ultra", "b300", ""),
    (r"b\s*200", "b200", ""),
    (r"h\s*200[\s_-]*nvl", "h200", "an H200 NVL is described as an H200, which has a higher power limit"),
    (r"h\s*200", "h200", ""),
    (r"h\s*100[\s_-]*nvl", "h100-nvl", ""),
    (r"h\s*100[\s_-]*pcie", "h100-pcie", ""),
    (r"h\s*100", "h100", ""),
    (r"h\s*20\b", "h20", ""),
    (r"a\s*100[\s_-]*(?:pcie|pci)[^,;]*40", "a100-pcie-40g", ""),
    (r"a\s*100[\s_-]*(?:pcie|pci)", "a100-pcie-80g", ""),
    (r"a\s*100[^,;]*40\s*g", "a100-40g", ""),
    (r"a\s*100", "a100-80g", ""),
    (r"l\s*40s", "l40s", ""),
    (r"l\s*4\b", "l4", ""),
    (r"a\s*10\b", "a10", ""),
    (r"t\s*4\b", "t4", ""),
    (r"v\s*100", "v100", ""),
    (r"rtx\s*4090|\b4090\b", "rtx4090", ""),
    (r"rtx\s*pro\s*6000[^,;]*server", "rtx-pro-6000-server", ""),
    (r"rtx\s*pro\s*6000", "rtx-pro-6000", ""),
)
_OTHER_MAKERS = re.compile(r"\b(?:mi\d{3}x?|instinct|gaudi\s*\d?|tpu|trainium\d?|ascend)\b", re.IGNORECASE)
_PCIE_ONLY = frozenset(
    (
        *("h100-pcie", "h100-nvl", "a100-pcie-40g", "a100-pcie-80g", "l40s", "l4", "a10", "t4", "rtx4090"),
        *("rtx-pro-6000", "rtx-pro-6000-server"),
    )
)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:[gG](?:b|[bB]it)?(?:/s|ps|bps|bit/s)?|[gG]b[eE]|GbE)\b")
"""Matches the rate of a card, in bits: GB/s is said of NVLink and PCIe."""
_NAMED_RATES = {"xdr": 800.0, "ndr200": 200.0, "ndr": 400.0, "hdr100": 100.0, "hdr": 200.0, "edr": 100.0, "fdr": 56.0}
_COUNT = r"(?<![\w.])(\d+)\s*(?:x|×|\*)\s*"
_CARDS = re.compile(_COUNT + r"|\bx\s*(\d+)\b", re.IGNORECASE)
_NETWORK = re.compile(
    r"nic|adapter|hca|connect-?x|mlx|bluefield|\bbf\d|mt4\d{4}|infiniband|\bib\b|ndr|hdr|edr|xdr|roce|ethernet|efa|"
    r"slingshot|gb/s|gbps|gbit|gbe",
    re.IGNORECASE,
)
_NOT_FOR_TRAINING = re.compile(r"storage|management|in-?band|\bbmc\b|oob|boot|front-?end", re.IGNORECASE)
_LINKS = (
    ("infiniband", re.compile(r"infiniband|\bib\b|\b[nhx]dr\b|\bedr\b", re.IGNORECASE)),
    ("ethernet", re.compile(r"ethernet|roce|\befa\b|slingshot|gbe\b|spectrum", re.IGNORECASE)),
)


@dataclass(frozen=True, slots=True)
class Cards:
    """Network cards of one kind."""

    count: int
    gbps: float
    text: str

    @property
    def total(self) -> float:
        return self.count * self.gbps


def read_words(text: str, origin: str = "words") -> Facts:
    """The facts of the sentence. Raises ProfileError if it names no GPU, or one that is not emulated."""
    parts = [part for part in re.split(r"[,;\n]|\band\b|\bwith\b", text) if part.strip()]
    gpu, notes = gpu_of(text)
    if gpu is None:
        raise ProfileError(f"{text!r} names no GPU that has a description: phantora-async profiles list shows them")
    facts: dict[str, Fact[object]] = {"gpu": Fact(gpu, origin)}
    rest: list[str] = []
    for part in parts:
        named = any(re.search(pattern, part, re.IGNORECASE) for pattern, *_ in _GPUS)
        if found := re.search(r"(\d+)\s*(?:servers?|nodes?|machines?|hosts?)\b(?!\s*(?:per|a|to)\b)", part, re.I):
            facts["servers"] = Fact(int(found[1]), origin)
        if named and (count := _gpus(part)):
            facts["gpus"] = Fact(count, origin)
        rest += [] if named and not _NETWORK.search(part) else [part]
    cards = network_cards(", ".join(rest))
    if cards:
        best, more = chosen(cards, None)
        facts |= {"nics": Fact(best.count, origin), "nic_gbps": Fact(best.gbps, origin)}
        notes += more
    if link := link_of(text):
        facts["link"] = Fact(link, origin)
    facts |= _fabric(text, origin)
    if re.search(r"no nvlink|without nvlink|\bpcie\b", text, re.I) or gpu in _PCIE_ONLY:
        facts["inside"] = Fact("pcie", origin)
    elif re.search(r"nvswitch|sxm|hgx|dgx|nvl72", text, re.I):
        facts["inside"] = Fact("nvswitch", origin)
    if re.search(r"bridge", text, re.I):
        facts["nvlink_pairs"] = Fact(True, origin)
    return Facts(**facts, notes=tuple(notes))  # type: ignore[arg-type]


def _gpus(part: str) -> int | None:
    """The number of GPUs of a server: the 8 of `16 x 8 x H100`, of `nodes of 8 H100` and of `8xH100`."""
    found = re.search(_COUNT + r"(?!\s*\d+\s*(?:x|×))", part, re.I) or re.search(r"\b(?:of|each)\s+(\d+)\s", part, re.I)
    return int(found[1]) if found else None


def gpu_of(text: str) -> tuple[str | None, list[str]]:
    """The description of the GPU that a text names, and remarks where it differs. Raises ProfileError."""
    for pattern, name, note in _GPUS:
        if re.search(r"(?<![a-wyz0-9])(?:" + pattern + ")", text, re.IGNORECASE):
            return name, [note] if note else []
    if other := _OTHER_MAKERS.search(text):
        raise ProfileError(f"{other[0]}: GPUs of NVIDIA are emulated, not others")
    return None, []


def network_cards(text: str) -> list[Cards]:
    """The cards that a text lists for traffic between servers, in its order."""
    found = []
    for part in re.split(r",|;|\+|\band\b", text):
        if _NOT_FOR_TRAINING.search(part) or not _NETWORK.search(part):
            continue
        rates = [float(one) for one in _RATE.findall(part)]
        rates += [gbps for name, gbps in _NAMED_RATES.items() if not rates and re.search(rf"\b{name}\b", part, re.I)]
        if rates:
            count = _CARDS.search(part)
            found.append(Cards(int(count[1] or count[2]) if count else 1, max(rates), " ".join(part.split())))
    return found


def chosen(cards: list[Cards], gpus: int | None) -> tuple[Cards, list[str]]:
    """The cards that training uses (as many as GPUs where some are, then the most bandwidth), and notes on others."""
    best = max(cards, key=lambda one: (gpus is not None and one.count == gpus, one.total))
    rivals = [one for one in cards if one is not best and one.count == best.count and one.count > 1]
    notes = [
        f"two kinds of {best.count} cards: taken are those of {best.gbps:g} Gbit/s ({best.text}), not those of "
        f"{one.gbps:g} ({one.text})"
        for one in rivals
    ]
    return best, notes


def link_of(text: str) -> str | None:
    """The kind of link in a text: InfiniBand or Ethernet; None if it names neither."""
    return next((name for name, pattern in _LINKS if pattern.search(text)), None)


def _fabric(text: str, origin: str) -> dict[str, Fact[object]]:
    facts: dict[str, Fact[object]] = {}
    if re.search(r"rail", text, re.I):
        facts["fabric"] = Fact("rail", origin)
    elif re.search(r"leaf|spine|fat[\s-]*tree|clos|tor\b|top[\s-]of[\s-]rack", text, re.I):
        facts["fabric"] = Fact("leaf-spine", origin)
    elif re.search(r"(?:one|single|a) switch", text, re.I):
        facts["fabric"] = Fact("switch", origin)
    if ratio := re.search(r"(\d+(?:\.\d+)?)\s*:\s*(\d+(?:\.\d+)?)", text):
        facts["oversubscription"] = Fact(float(ratio[1]) / float(ratio[2]), origin)
    elif re.search(r"non[\s-]*blocking|full bisection|not oversubscribed", text, re.I):
        facts["oversubscription"] = Fact(1.0, origin)
    if per_leaf := re.search(r"(\d+)\s*(?:servers?|nodes?)\s*(?:per|a|to a|on a)\s*(?:leaf|tor|switch)", text, re.I):
        facts["servers_per_leaf"] = Fact(int(per_leaf[1]), origin)
    return facts
