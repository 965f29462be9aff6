"""Calls of every kind with arguments and results, some of which are secrets."""

import functools

import harness
import ray

SECRET = "hunter2-canary"
KEY = f"sk-{SECRET}-0123456789"


def checked(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Hostile:
    def __repr__(self):
        raise AssertionError("this is code of the user")


@ray.remote
def login(user, password, *others, url="", **options):
    return {"user": user, "token": password, "given": len(others) + len(options), "url": url}


@ray.remote
@checked
def decorated(user, password):
    return [user, password == SECRET]


@ray.remote
def get_token():
    return SECRET


@ray.remote
def plain(value, other=None):
    return value


@ray.remote
def calls(secret):
    return ray.get(plain.remote({"api_key": secret, "n": 1}, other=[KEY, 2]))["n"]


@ray.remote
def yields(count, token):
    for number in range(count):
        yield number


@ray.remote
class Client:
    def __init__(self, name, credentials):
        self.name = name

    def ask(self, question, api_key=None):
        return f"{self.name}: {question}"

    async def wait(self, password, seconds):
        return seconds

    @staticmethod
    def helper(password, number):
        return number if password == SECRET else None

    @classmethod
    def made(cls, password, number):
        return number if password == SECRET else None


def main():
    client = Client.remote("me", SECRET)
    return [
        ray.get(login.remote("zoë", SECRET, 1, url=f"http://zoë:{SECRET}@host/", pin=SECRET))["given"],
        ray.get(decorated.remote("zoë", SECRET)),
        len(ray.get(get_token.remote())),
        len(ray.get(plain.remote(b"\0" * 10, other="x" * 1000))),
        type(ray.get(plain.remote(Hostile()))).__name__,
        ray.get(calls.remote(SECRET)),
        [ray.get(ref) for ref in yields.remote(2, SECRET)],
        ray.get(client.ask.remote("why", api_key=SECRET)),
        ray.get(client.wait.remote(SECRET, 0.5)),
        ray.get(client.helper.remote(SECRET, 3)),
        ray.get(client.made.remote(SECRET, 4)),
    ]


if __name__ == "__main__":
    harness.run(main)
