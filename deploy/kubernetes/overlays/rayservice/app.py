"""A small application to try the components with: a request goes through two deployments."""

from ray import serve


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Price:
    def of(self, item):
        return len(item)


@serve.deployment(ray_actor_options={"num_cpus": 0.1})
class Shop:
    def __init__(self, price):
        self.price = price

    async def __call__(self, request):
        item = request.query_params.get("item", "tea")
        return {"item": item, "price": await self.price.of.remote(item)}


app = Shop.bind(Price.bind())
