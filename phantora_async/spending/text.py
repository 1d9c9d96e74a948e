"""Writes money and energy as lines of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phantora_async.spending.asked import of_step

KWH_J = 3.6e6
STEPS = 1000
"""The number of steps whose cost is told."""
UNITS = ((1e6 * KWH_J, "GWh"), (1e3 * KWH_J, "MWh"), (KWH_J, "kWh"), (1e3, "kJ"), (1.0, "J"))
"""The units of energy, in joules."""


def lines(bill: Mapping[str, Any]) -> list[str]:
    """The lines for a document of ``bill``; none if neither money nor energy is known."""
    price = bill["price"]
    if price is None and bill["step"]["kwh"] is None:
        return []
    found = []
    if price is not None:
        per_hour = range_text([price["low"], price["high"]], price["currency"])
        found.append(f"price: {per_hour} an hour for one {bill['gpu']} ({price['source']}, {price['date']})")
    found.append(_steps_text(bill["step"], price))
    if bill["million_tokens"] is not None:
        found.append(
            f"a million tokens cost {amount_text(bill['million_tokens'], price)}; "
            f"{bill['tokens_per_step']:,.0f} a step ({bill['tokens_from']})"
        )
    job = bill["job"]
    if job is not None:
        tokens = f", {number(job['tokens'])} tokens" if job["tokens"] else ""
        lost = f" at a goodput of {job['goodput']:.1%}" if job["goodput"] < 1 else ""
        found.append(
            f"the job: {job['steps']:,.0f} steps{tokens}, {duration_text(job['hours'])}{lost}, "
            f"{number(job['gpu_hours'])} GPU hours, costs {amount_text(job, price)}"
        )
    return [*found, bill["includes"]]


def spending_notes(report: Mapping[str, Any]) -> list[str]:
    """The line on the cost of a step, if it is known."""
    bill = of_step(report)
    if bill is None or (bill["price"] is None and bill["step"]["kwh"] is None):
        return []
    energy = report["simulated"].get("energy")
    drawn = f", {energy['gpu_w']:.0f} W a GPU" if energy is not None else ""
    return [f"{_steps_text(bill['step'], bill['price'])}{drawn} (report --tokens N: the whole job)"]


def _steps_text(step: Mapping[str, Any], price: Mapping[str, Any] | None) -> str:
    """The cost of 1,000 steps: that of one is too small a number to read."""
    money, kwh = step["money"], step["kwh"]
    thousand = {
        "money": None if money is None else [STEPS * one for one in money],
        "kwh": None if kwh is None else STEPS * kwh,
    }
    between = " (lowest to highest price)" if money is not None and money[0] != money[1] else ""
    return f"{STEPS:,} steps cost {amount_text(thousand, price, between)}"


def amount_text(amount: Mapping[str, Any], price: Mapping[str, Any] | None, between: str = "") -> str:
    """The amount as text: ``$0.0024 to 0.0038 and 2.09 kJ``. `between`: says what the range of money is, behind it."""
    parts = []
    if amount["money"] is not None and price is not None:
        parts.append(range_text(amount["money"], price["currency"]) + between)
    if amount["kwh"] is not None:
        parts.append(energy_text(amount["kwh"]))
    return " and ".join(parts) or "nothing that is known"


def range_text(money: list[float], currency: str) -> str:
    low, high = (number(one) for one in money)
    return f"{currency}{low}" if low == high else f"{currency}{low} to {high}"


def number(value: float) -> str:
    """The number with three significant digits, in full: ``0.00243``, ``15,600``."""
    if value == 0:
        return "0"
    if value >= 1e15:
        return f"{value:.3g}"
    text = f"{float(f'{value:.3g}'):,.12f}"
    return text.rstrip("0").rstrip(".") if value >= 1e-9 else f"{value:.3g}"


def energy_text(kwh: float) -> str:
    scale, unit = next(((scale, unit) for scale, unit in UNITS if kwh * KWH_J >= scale), UNITS[-1])
    return f"{number(kwh * KWH_J / scale)} {unit}"


def duration_text(hours: float) -> str:
    return f"{hours / 24:,.1f} days" if hours >= 48 else f"{hours:,.2f} hours"
