/** An HTTP service: POST /predict answers with a model's prediction, and POST /learn trains it on one more batch while it serves. */

import { createServer, type Server } from "node:http";
import { json } from "node:stream/consumers";
import {
  type Device,
  device,
  HoldfastError,
  manualSeed,
  nn,
  noGrad,
  optim,
  type Tensor,
  tensor,
} from "holdfast";

const isNumber = (value: unknown): value is number => typeof value === "number";
const isList = <T>(value: unknown, isItem: (item: unknown) => item is T): value is T[] =>
  Array.isArray(value) && value.every(isItem);
const has = <Key extends string>(key: Key, value: unknown): value is Record<Key, unknown> =>
  typeof value === "object" && value !== null && key in value;

/** Answers requests with a model of two inputs. Works on one request at a time; the device is shared. */
function serve(cpu: Device): Server {
  const model = new nn.Sequential(new nn.Linear(2, 32), new nn.Tanh(), new nn.Linear(32, 1)).to(cpu);
  const optimizer = new optim.Adam(model.parameters(), { lr: 1e-2 });
  const predict = cpu.compile((x: Tensor) => noGrad(() => model.forward(x).squeeze(1)));
  const learn = cpu.compile((x: Tensor, y: Tensor) => {
    const loss = nn.functional.mseLoss(model.forward(x).squeeze(1), y);
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });

  /** The answer to a request's body, which nobody has checked yet. */
  function answer(path: string | undefined, body: unknown): object {
    if (
      !has("x", body) ||
      !isList(body.x, (row): row is number[] => isList(row, isNumber) && row.length === 2)
    )
      throw new TypeError("x has to be a list of pairs");
    if (path === "/predict") return { y: predict(tensor(body.x)).tolist() };
    if (!has("y", body) || !isList(body.y, isNumber) || body.y.length !== body.x.length)
      throw new TypeError("y has to have a number for each pair");
    return { loss: learn(tensor(body.x), tensor(body.y)).item() };
  }

  return createServer(async (request, response) => {
    const send = (status: number, value: object) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
    };
    try {
      if (request.method !== "POST" || !["/predict", "/learn"].includes(request.url ?? ""))
        return send(404, { error: "POST /predict or POST /learn" });
      send(200, answer(request.url, await json(request)));
    } catch (error) {
      const isMine =
        error instanceof HoldfastError || error instanceof TypeError || error instanceof SyntaxError;
      send(isMine ? 400 : 500, { error: String(error) });
    }
  });
}

export interface Result {
  readonly statuses: readonly number[];
  readonly before: number;
  readonly after: number;
}

/** Runs the service and a client that teaches it y = a · b. */
export async function main(rounds = 150): Promise<Result> {
  const cpu = await device("cpu");
  manualSeed(9);
  const server = serve(cpu);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" ? address?.port : undefined;
  const post = async (path: string, body: string): Promise<{ status: number; answer: unknown }> => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { method: "POST", body });
    return { status: response.status, answer: await response.json() };
  };

  const pairs = (count: number, from: number) =>
    Array.from({ length: count }, (_, index) => [
      Math.sin((index + from) * 1.3),
      Math.cos((index + from) * 2.1),
    ]);
  const product = ([a = 0, b = 0]: number[]) => a * b;
  const unseen = pairs(100, 0.5);
  /** The mean squared error on pairs that were not taught. */
  const errorOf = async () => {
    const { answer } = await post("/predict", JSON.stringify({ x: unseen }));
    const y = has("y", answer) && isList(answer.y, isNumber) ? answer.y : [];
    return (
      unseen.reduce((sum, pair, index) => sum + (product(pair) - (y[index] ?? Number.NaN)) ** 2, 0) / 100
    );
  };

  const before = await errorOf();
  for (let round = 0; round < rounds; round++) {
    const x = pairs(64, round * 64);
    await post("/learn", JSON.stringify({ x, y: x.map(product) }));
  }
  const after = await errorOf();
  const bad = await Promise.all([
    post("/predict", "{"),
    post("/predict", '{"x":[[1]]}'),
    post("/nowhere", "{}"),
  ]);
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  cpu.close();
  return { statuses: bad.map(({ status }) => status), before, after };
}
