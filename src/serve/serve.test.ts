/** The model server: answers, streams, cancellation, limits, tokens, and requests that mean harm. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, request as openRequest } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { makeFolder } from "../../test/support/folders.js";
import { Generator } from "../generate/index.js";
import { loadPretrained, modelFromConfig, savePretrained } from "../models/index.js";
import { device as openDevice } from "../tensor/index.js";
import { ByteTokenizer, loadTokenizer, saveTokenizer } from "../text/index.js";
import { type ModelServer, type ModelServerOptions, openModelServer } from "./index.js";

const device = await openDevice("cpu");
const folder = join(makeFolder(), "tiny");
const sizes = {
  vocab_size: 257,
  n_positions: 256,
  n_embd: 16,
  n_layer: 1,
  n_head: 2,
  initializer_range: 0.4,
};
savePretrained(modelFromConfig({ model_type: "gpt2", ...sizes }).to(device), folder);
const chatTemplate =
  "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
saveTokenizer(new ByteTokenizer({ eosToken: "<end>", chatTemplate }), folder);
const model = loadPretrained(folder, { device, frozen: true });
const generator = new Generator(model, { tokenizer: loadTokenizer(folder), slots: 2 });
after(() => {
  generator.close();
  device.close();
});

async function open(
  options: Partial<ModelServerOptions> = {},
): Promise<ModelServer & { readonly port: number }> {
  const server = await openModelServer({ generator, name: "tiny", ...options });
  after(() => server.close());
  return { ...server, port: Number(new URL(server.url).port) };
}

const shared = await open();
const chatPath = "/v1/chat/completions";
const hello = { model: "tiny", messages: [{ role: "user", content: "Hello" }], max_tokens: 12 };

interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

async function post(
  path: string,
  body: unknown,
  server = shared,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const response = await fetch(server.url + path, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

interface ApiChoice {
  readonly index: number;
  readonly text?: string;
  readonly message?: { readonly role: string; readonly content: string };
  readonly delta?: { readonly role?: string; readonly content?: string };
  readonly finish_reason: string | null;
}

interface ApiAnswer {
  readonly object: string;
  readonly choices: readonly ApiChoice[];
  readonly usage?: Readonly<Record<string, number>>;
}

async function ask(path: string, body: unknown, server = shared): Promise<ApiAnswer> {
  const { status, text } = await post(path, body, server);
  assert.equal(status, 200, text);
  return JSON.parse(text) as ApiAnswer;
}

async function answerOf(body: object): Promise<string | undefined> {
  return (await ask(chatPath, body)).choices[0]?.message?.content;
}

/** The events of a stream; the last one is [DONE]. */
function eventsOf(text: string): readonly ApiAnswer[] {
  const events = text.split("\n\n").map((line) => line.replace(/^data: /, ""));
  assert.deepEqual(events.slice(-2), ["[DONE]", ""]);
  return events.slice(0, -2).map((line) => JSON.parse(line) as ApiAnswer);
}

/** A stream whose first events have arrived. */
async function openStream(body: object, server = shared): Promise<IncomingMessage> {
  const sent = openRequest({ port: server.port, path: chatPath, method: "POST", agent: false });
  sent.setHeader("Content-Type", "application/json").end(JSON.stringify({ ...body, stream: true }));
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  response.on("error", () => undefined);
  await once(response, "readable");
  return response;
}

async function readAll(response: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of response.setEncoding("utf8")) text += chunk;
  return text;
}

interface Health {
  readonly status: string;
  readonly running: number;
  readonly waiting: number;
}

async function health(server = shared): Promise<Health> {
  return (await (await fetch(`${server.url}/health`)).json()) as Health;
}

async function untilIdle(server = shared): Promise<void> {
  for (let count = 1; count > 0; ) count = (await health(server)).running;
}

describe("answers", () => {
  test("a chat has the text that the generator writes, its usage and the reason of its end", async () => {
    const ids = new ByteTokenizer().encode("<user>Hello<assistant>");
    const { text, finishReason } = await generator.start(ids, { maxNewTokens: 12 }).result();
    const { object, choices, usage } = await ask(chatPath, hello);
    assert.equal(object, "chat.completion");
    const [{ message, finish_reason } = assert.fail()] = choices;
    assert.deepEqual([message?.role, message?.content, finish_reason], ["assistant", text, finishReason]);
    assert.deepEqual(usage, { prompt_tokens: 22, completion_tokens: 12, total_tokens: 34 });
  });

  test("the pieces of a stream are the text of the whole answer", async () => {
    const body = { ...hello, temperature: 1, seed: 5, n: 2 };
    const whole = await ask(chatPath, body);
    const stream = await post(chatPath, { ...body, stream: true, stream_options: { include_usage: true } });
    assert.match(stream.headers.get("content-type") ?? "", /^text\/event-stream/);
    const events = eventsOf(stream.text);
    const choices = events.flatMap((event) => event.choices);
    for (const { index, message, finish_reason } of whole.choices) {
      const own = choices.filter((choice) => choice.index === index);
      assert.equal(own[0]?.delta?.role, "assistant");
      assert.equal(own.map(({ delta }) => delta?.content ?? "").join(""), message?.content);
      assert.deepEqual(own.map((choice) => choice.finish_reason).filter(Boolean), [finish_reason]);
    }
    assert.deepEqual([events.at(-1)?.choices, events.at(-1)?.usage], [[], whole.usage]);
  });

  test("texts of several clients at once are those of one at a time", async () => {
    const bodies = [1, 2, 3, 4, 5].map((seed) => ({
      ...{ ...hello, temperature: 1.2, top_p: 0.9, seed, max_tokens: 6 * seed },
      messages: [{ role: "user", content: "Hello".repeat(seed) }],
    }));
    const alone: unknown[] = [];
    for (const body of bodies) alone.push(await answerOf(body));
    assert.deepEqual(await Promise.all(bodies.map(answerOf)), alone);
    assert.equal(new Set(alone).size, bodies.length);
  });

  test("completions take texts and ids, and have a choice for each prompt and n", async () => {
    const settings = { max_tokens: 6, temperature: 1, seed: 9 };
    const textsOf = async (prompt: unknown, n = 1) =>
      (await ask("/v1/completions", { prompt, n, ...settings })).choices.map(({ text }) => text);
    const [first, second] = [await textsOf("Hi"), await textsOf([[72, 105], [65]])];
    assert.equal(second[0], first[0]);
    assert.deepEqual(await textsOf([72, 105]), first);
    assert.deepEqual((await textsOf(["Hi", "A"], 2)).slice(0, 1), first);
    assert.equal((await textsOf(["Hi", "A"], 2)).length, 4);
    const usual = await ask("/v1/completions", { prompt: "Hi" });
    assert.equal(usual.usage?.["completion_tokens"], 16);
  });

  test("a stop string ends the text before it", async () => {
    const whole = await answerOf({ ...hello, max_tokens: 40, temperature: 2, seed: 3 });
    const stop = whole?.slice(5, 7) ?? "";
    const { choices } = await ask(chatPath, { ...hello, max_tokens: 40, temperature: 2, seed: 3, stop });
    assert.deepEqual(
      [choices[0]?.message?.content, choices[0]?.finish_reason],
      [whole?.slice(0, whole.indexOf(stop)), "stop"],
    );
  });

  test("requests as official clients send them are accepted", async () => {
    for (const body of [
      {
        ...hello,
        stream: false,
        n: 1,
        temperature: 0.7,
        top_p: 1,
        presence_penalty: 0,
        frequency_penalty: 0,
      },
      { ...hello, logprobs: false, top_logprobs: null, stop: null, user: "a", metadata: {}, store: false },
      { ...hello, max_tokens: undefined, max_completion_tokens: 3, seed: -4, tools: [], tool_choice: "none" },
      { ...hello, response_format: { type: "text" }, logit_bias: {}, service_tier: "auto" },
      {
        ...hello,
        messages: [
          {
            role: "system",
            content: [
              { type: "text", text: "Be" },
              { type: "text", text: " brief" },
            ],
          },
          { role: "user", content: "Hi", name: "someone" },
          { role: "assistant", content: "Hello", refusal: null, tool_calls: null },
          { role: "user", content: "Again" },
        ],
      },
    ])
      assert.equal((await ask(chatPath, body)).choices.length, 1);
  });

  test("the model is listed, by its name too, and health needs no body", async () => {
    const get = async (path: string) => fetch(shared.url + path);
    const { data } = (await (await get("/v1/models")).json()) as { data: readonly { id: string }[] };
    assert.deepEqual(
      data.map(({ id }) => id),
      ["tiny"],
    );
    assert.equal((await get("/v1/models/tiny")).status, 200);
    assert.equal((await get("/v1/models/other")).status, 404);
    assert.deepEqual(await health(), { status: "ok", running: 0, waiting: 0 });
  });
});

describe("limits", () => {
  test("a client that goes away frees its slots", async () => {
    const long = { ...hello, max_tokens: 200, n: 2 };
    const [first, second] = [await openStream(long), await openStream(long)];
    assert.deepEqual(await health(), { status: "ok", running: 2, waiting: 2 });
    first.destroy();
    second.destroy();
    await untilIdle();
    assert.deepEqual([generator.running, generator.waiting], [0, 0]);
    assert.equal((await ask(chatPath, hello)).choices.length, 1);
  });

  test("texts above the slots and the queue are rejected with 429, and a time to try again", async () => {
    const server = await open({ maxWaiting: 1 });
    const long = { ...hello, max_tokens: 200 };
    const streams = [await openStream(long, server), await openStream(long, server)];
    const waits = post(chatPath, hello, server);
    for (let waiting = 0; waiting === 0; ) ({ waiting } = await health(server));
    const { status, headers, text } = await post(chatPath, hello, server);
    assert.equal(status, 429, text);
    assert.match(headers.get("retry-after") ?? "", /^[1-9]\d?$/);
    for (const stream of streams) stream.destroy();
    assert.equal((await waits).status, 200);
  });

  test("a text that takes too long ends with 504, and a stream with an error", async () => {
    const server = await open({ timeLimitMs: 1 });
    const long = { ...hello, max_tokens: 200 };
    assert.equal((await post(chatPath, long, server)).status, 504);
    const stream = await post(chatPath, { ...long, stream: true }, server);
    assert.match(
      stream.text,
      /\n\ndata: \{"error":\{"message":"The texts took longer than 1 ms\.".*\}\}\n\n$/,
    );
    await untilIdle(server);
  });

  test("closing waits for texts up to the drain time, and rejects new ones", async () => {
    const server = await open();
    const stream = await openStream({ ...hello, max_tokens: 60 }, server);
    const late = connect(server.port, "127.0.0.1");
    late.write(`POST ${chatPath} HTTP/1.1\r\nHost: 127.0.0.1:${server.port}\r\n`);
    // The server has seen the beginning of the request when it answers another one.
    await health(server);
    const closed = server.close(20_000);
    late.write("Content-Length: 0\r\n\r\n");
    assert.match(String((await once(late, "data"))[0]), /^HTTP\/1\.1 503 .*\r\nRetry-After: 1\r\n/s);
    assert.equal(eventsOf(await readAll(stream)).at(-1)?.choices[0]?.finish_reason, "length");
    await closed;
    await assert.rejects(post(chatPath, hello, server));
    const other = await open();
    const cut = await openStream({ ...hello, max_tokens: 200 }, other);
    const text = readAll(cut);
    await other.close(0);
    assert.match(await text, /"The server is stopping\. Try again\."/);
  });

  test("a body that does not arrive in time is answered with 408", async () => {
    const { port } = await open({ headerTimeoutMs: 100 });
    const socket = connect(port, "127.0.0.1");
    socket.write(
      `POST ${chatPath} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{`,
    );
    let text = "";
    socket.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
    });
    await once(socket, "close");
    assert.match(text, /^HTTP\/1\.1 408 .*"The request took too long to arrive\."/s);
  });
});

describe("access", () => {
  test("a token is required on every path but health, and chosen if other machines can reach the server", async () => {
    const token = "a-token-of-this-test";
    const server = await open({ token });
    const statusWith = async (authorization: string) =>
      (await post(chatPath, hello, server, { Authorization: authorization })).status;
    assert.equal((await post(chatPath, hello, server)).status, 401);
    assert.equal(await statusWith("Bearer another-token"), 401);
    assert.equal(await statusWith(`Bearer ${token}`), 200);
    assert.equal((await fetch(`${server.url}/v1/models`)).status, 401);
    assert.equal((await health(server)).status, "ok");
    assert.match((await open({ host: "0.0.0.0" })).token ?? "", /^[\w-]{32}$/);
    await assert.rejects(open({ token: "short" }), { code: "BAD_ARGUMENT" });
  });

  test("without a token, other host names and other sites are rejected", async () => {
    for (const headers of [{ Host: "example.com" }, { Origin: "http://example.com" }]) {
      const sent = openRequest({ port: shared.port, path: "/v1/models", headers, agent: false });
      const [response] = (await once(sent.end(), "response")) as [IncomingMessage];
      assert.equal(response.statusCode, 403);
      response.resume();
    }
  });
});

describe("rejected requests", () => {
  const chat = (fields: object) => ({ ...hello, ...fields });
  for (const [name, body, status, param, message] of [
    ["no JSON", "{", 400, null, /not JSON/],
    ["no object", "[]", 400, null, /must be an object/],
    ["an unknown field", chat({ temprature: 1 }), 400, "temprature", /Unknown field: temprature/],
    ["logprobs", chat({ logprobs: true }), 400, "logprobs", /logprobs is not supported/],
    ["tools", chat({ tools: [{}] }), 400, "tools", /tools is not supported/],
    ["another model", chat({ model: "gpt-4" }), 404, "model", /"gpt-4" is not here/],
    ["a wrong type", chat({ temperature: "hot" }), 400, "temperature", /must be a number, but is "hot"/],
    ["a huge number", '{"messages":[],"temperature":1e999}', 400, "temperature", /must be a number/],
    ["a huge integer", chat({ max_tokens: 1e300 }), 400, "max_tokens", /whole number from 1 to 256/],
    ["a fraction", chat({ n: 1.5 }), 400, "n", /whole number/],
    ["too many texts", chat({ n: 17 }), 400, "n", /from 1 to 16/],
    ["no messages", chat({ messages: [] }), 400, "messages", /at least one message/],
    ["messages that are no list", chat({ messages: { length: 1e9 } }), 400, "messages", /a list/],
    [
      "an image",
      chat({ messages: [{ role: "user", content: [{ type: "image_url" }] }] }),
      400,
      "messages[0].content[0].type",
      /must be "text"/,
    ],
    ["a message without a role", chat({ messages: [{ content: "x" }] }), 400, "messages[0].role", /absent/],
    [
      "names of prototypes",
      '{"__proto__":{"messages":[]},"constructor":1}',
      400,
      "__proto__",
      /Unknown fields/,
    ],
    ["an empty stop string", chat({ stop: [""] }), 400, "stop[0]", /at least one character/],
    ["stream options without a stream", chat({ stream_options: {} }), 400, "stream_options", /needs stream/],
    ["deep JSON", `{"messages":${"[".repeat(15_000)}`, 400, null, /levels; the maximum is 32/],
    ["many values", `{"stop":[${"[],".repeat(25_000)}1]}`, 413, null, /larger than/],
    [
      "a long prompt",
      chat({ messages: [{ role: "user", content: "x".repeat(1000) }] }),
      400,
      "messages",
      /1017 tokens; the maximum is 255/,
    ],
    [
      "a very long prompt",
      chat({ messages: [{ role: "user", content: "x".repeat(60_000) }] }),
      400,
      "messages",
      /60017 characters; the maximum is 255/,
    ],
    [
      "a long body",
      chat({ messages: [{ role: "user", content: "x".repeat(2 ** 20) }] }),
      413,
      null,
      /larger than/,
    ],
  ] as const) {
    test(`${name}: a clear answer within a second`, async () => {
      const startMs = performance.now();
      const answer = await post(chatPath, body);
      const { error } = JSON.parse(answer.text) as {
        error: { message: string; param: string | null; type: string };
      };
      assert.deepEqual(
        [answer.status, error.param, error.type],
        [status, param, "invalid_request_error"],
        answer.text,
      );
      assert.match(error.message, message);
      assert.ok(performance.now() - startMs < 1000);
    });
  }

  test("ids that the model does not have, and an empty prompt", async () => {
    for (const [prompt, message] of [
      [[1, 257], /prompt\[1\] must be a whole number from 0 to 256, but is 257/],
      [[1, "a"], /prompt\[1\] must be/],
      ["", /no tokens/],
      [[], /not empty/],
      [Array(17).fill("a"), /at most 16/],
    ] as const) {
      const { status, text } = await post("/v1/completions", { prompt });
      assert.equal(status, 400);
      assert.match((JSON.parse(text) as { error: { message: string } }).error.message, message);
    }
  });

  test("a chat template that loops is stopped, and a model without one has no chats", async () => {
    for (const [template, message] of [
      ["{% for i in range(1000000000) %}{% endfor %}", /template of tokenizer_config.json was stopped/],
      ["{{ raise_exception('Roles must alternate') }}", /Roles must alternate/],
      [undefined, /no chat template/],
    ] as const) {
      const tokenizer = new ByteTokenizer(template === undefined ? {} : { chatTemplate: template });
      const own = new Generator(model, { tokenizer });
      const server = await open({ generator: own });
      const { status, text } = await post(chatPath, hello, server);
      assert.equal(status, 400, text);
      assert.match(text, message);
      own.close();
    }
  });

  test("other paths, other methods and other types of content", async () => {
    const statusOf = async (path: string, options: RequestInit = {}) =>
      (await fetch(shared.url + path, options)).status;
    assert.equal(await statusOf("/v1/embeddings"), 404);
    assert.equal(await statusOf(chatPath), 405);
    assert.equal(await statusOf("/v1/models", { method: "DELETE" }), 405);
    assert.equal(await statusOf(chatPath, { method: "POST", body: "a=b" }), 415);
  });
});
