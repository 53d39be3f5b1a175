"""A worker that the tests of templates and completions start as a process; its tenant is BROKER_TENANT."""

from collections.abc import Mapping

from workers import Completion, Worker

worker = Worker("templates")
CITIES = {"at": ["graz", "linz", "wien"], "ch": ["basel", "bern"]}


@worker.resource("city://{country}/{city}", mime_type="application/json")
def city(country: str, city: str) -> dict[str, str]:
    """A city of a country."""
    return {"country": country, "city": city}


@worker.complete("city://{country}/{city}", "country")
def complete_country(typed: str) -> list[str]:
    """Countries that begin as typed."""
    return [country for country in CITIES if country.startswith(typed)]


@worker.complete("city://{country}/{city}", "city")
def complete_city(typed: str, others: Mapping[str, str]) -> list[str]:
    """Cities of the country that was chosen before."""
    return [name for name in CITIES.get(others.get("country", ""), []) if name.startswith(typed)]


@worker.resource("number://{n}")
def number(n: int) -> str:
    """A number."""
    return str(n)


@worker.complete("number://{n}", "n")
def complete_number(typed: str) -> list[str]:
    """More numbers than one answer may hold."""
    return [each for each in map(str, range(1000)) if each.startswith(typed)]


@worker.resource("counted://{n}")
def counted(n: str) -> str:
    """A resource whose completion says how many there are."""
    return n


@worker.complete("counted://{n}", "n")
def complete_counted(typed: str) -> Completion:
    """Three of many."""
    return Completion([typed + each for each in "abc"], total=42)
