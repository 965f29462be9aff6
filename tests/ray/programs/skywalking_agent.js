// The same as skywalking_agent.py, traced by SkyWalking's agent for Node: `call URL`, or `serve` until its input ends.
"use strict";

const path = require("node:path");

const agent = require(path.join(process.env.RTH_AGENT, "..", "agent", "node_modules", "skywalking-backend-js")).default;

agent.start({
  serviceName: process.env.SW_AGENT_NAME,
  serviceInstance: process.env.SW_AGENT_INSTANCE_NAME,
  collectorAddress: process.env.RTH_BACKEND,
});

const http = require("node:http"); // after the agent has begun, which patches it

async function end() {
  // Null if there is nothing to send; otherwise it may not have sent it yet, as long as it is not connected.
  for (let sent = agent.flush(); sent !== null; sent = agent.flush()) {
    await sent;
    await new Promise(setImmediate);
  }
  process.exit(0);
}

if (process.argv[2] === "call") {
  const request = http.request(process.argv[3], (response) => {
    let text = "";
    response.on("data", (part) => (text += part));
    response.on("end", () => console.log(text));
  });
  request.on("close", () => setImmediate(end)); // after the agent, whose span ends with it
  request.end();
} else {
  const server = http.createServer((request, response) => response.end(`${request.headers.sw8}`));
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
  process.stdin.resume().on("end", end);
}
