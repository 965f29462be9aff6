"""Prices 200 orders. Each needs an exchange rate, which one actor gets from a database."""

import time

import ray


@ray.remote(num_cpus=0)
class Rates:
    """Knows exchange rates."""

    def rate(self, currency):
        time.sleep(0.025)  # asks a database
        return {"EUR": 1.1, "GBP": 1.3}.get(currency, 1.0)


@ray.remote
def price(orders, rates):
    found = ray.get([rates.rate.remote(currency) for _, currency in orders])
    return sum(amount * rate for (amount, _), rate in zip(orders, found, strict=True))


# The hook is the only word about tracing.
ray.init("local", num_cpus=3, include_dashboard=False, _tracing_startup_hook="ray_tracing_hooks.local:setup")
orders = [(number, ("EUR", "GBP", "USD")[number % 3]) for number in range(200)]
rates = Rates.remote()
total = sum(ray.get([price.remote(orders[half::2], rates) for half in range(2)]))
print(f"{len(orders)} orders: {total:,.2f} dollars")
