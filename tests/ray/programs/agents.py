"""Agents with four tools each, in a task and in actors: of the client alone, of LangChain and of LlamaIndex.

The argument is the address of a server of chat completions (``chat_server.py``). The tools call tasks.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import harness
import ray

TOOLS = ("one", "two", "three", "four")
WORD = {"type": "object", "properties": {"word": {"type": "string"}}}
ASKED = [{"type": "function", "function": {"name": name, "description": name, "parameters": WORD}} for name in TOOLS]
URL, KEY, MODEL = f"{sys.argv[1]}/v1", "none", "gpt-4o-mini"


def instrumented(*names):
    """Options of calls whose workers import only these libraries, since that takes seconds. Calls below inherit it."""
    return {"num_cpus": 0, "runtime_env": {"env_vars": {"RAY_TRACING_INSTRUMENT": ",".join(names) or "none"}}}


@ray.remote(**instrumented())
def look_up(word):
    return word * 2


def use(word):
    return ray.get(look_up.remote(word))


def made(decorate):
    """The tools of an agent."""

    def tool(name):
        def found(word: str) -> str:
            """Look a word up."""
            return use(word)

        found.__name__ = name
        return decorate(found)

    return [tool(name) for name in TOOLS]


@ray.remote(**instrumented("openai", "httpx"))
def by_hand():
    """It runs its tools in threads of its own, and streams the answer."""
    import openai

    chats = openai.OpenAI(base_url=URL, api_key=KEY).chat.completions
    messages = [{"role": "user", "content": "go"}]
    message = chats.create(model=MODEL, messages=messages, tools=ASKED).choices[0].message
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        results = list(pool.map(lambda call: use(**json.loads(call.function.arguments)), message.tool_calls))
    messages.append(message.to_dict())
    for call, result in zip(message.tool_calls, results, strict=True):
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    options = {"stream": True, "stream_options": {"include_usage": True}}
    parts = chats.create(model=MODEL, messages=messages, **options)
    return "".join(part.choices[0].delta.content or "" for part in parts if part.choices)


@ray.remote(**instrumented("langchain", "httpx"))
class LangChain:
    def run(self):
        from langchain.agents import create_agent
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI

        agent = create_agent(ChatOpenAI(model=MODEL, base_url=URL, api_key=KEY), made(tool), name="helper")
        return agent.invoke({"messages": [("user", "go")]})["messages"][-1].content


@ray.remote(**instrumented("llama-index", "openai", "httpx"))
class LlamaIndex:
    async def run(self):
        from llama_index.core.agent.workflow import FunctionAgent
        from llama_index.core.tools import FunctionTool
        from llama_index.llms.openai import OpenAI

        llm = OpenAI(model=MODEL, api_base=URL, api_key=KEY)
        agent = FunctionAgent(name="helper", tools=made(FunctionTool.from_defaults), llm=llm, streaming=False)
        return str(await agent.run("go"))


def main():
    agents = LangChain.remote(), LlamaIndex.remote()
    return ray.get([by_hand.remote(), *(agent.run.remote() for agent in agents)])


if __name__ == "__main__":
    harness.run(main)
