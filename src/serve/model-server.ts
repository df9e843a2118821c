/**
 * The server of a model. Each request is checked, its texts are started in the generator, and they share its slots with those of other
 * requests. A client that goes away cancels its texts.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { HoldfastError } from "../errors/index.js";
import type { GenerateOptions, Generator } from "../generate/index.js";
import {
  answerBrokenRequests,
  type ConnectionOptions,
  checkingIntervalOf,
  hostsOf,
  isLoopback,
  limitConnections,
  listen,
  makeToken,
  requireToken,
  urlHost,
} from "../http/index.js";
import type { Tokenizer } from "../text/index.js";
import { type AccessRules, requireAccess } from "./access.js";
import { BodyReader } from "./request-body.js";
import { errorBody, RequestError, toRequestError } from "./request-error.js";
import { sendJson, sendTexts } from "./send-texts.js";
import { TextQueue } from "./text-queue.js";
import { type RequestKind, type RequestRules, readTextRequest } from "./text-request.js";

export interface ModelServerOptions extends ConnectionOptions {
  /** Has the tokenizer, and the slots for texts. */
  readonly generator: Generator;
  /** The name of the model in requests and answers. */
  readonly name: string;
  /** Settings of texts that a request does not name. */
  readonly defaults?: GenerateOptions;
  /** Default: 0, a free port. */
  readonly port?: number;
  /** Default: 127.0.0.1. */
  readonly host?: string;
  /** Required in every request. Default: random if other machines can reach the host, else none. */
  readonly token?: string;
  /** Maximum number of tokens of a prompt. Default: one less than the generator's maximum length. */
  readonly maxPrompt?: number;
  /** Maximum number of new tokens of a text. Default: the generator's maximum length. */
  readonly maxTokens?: number;
  /** Maximum number of texts that wait for a slot. Default: 64. */
  readonly maxWaiting?: number;
  /** Maximum number of texts of a request. Default: 16. */
  readonly maxTexts?: number;
  /** Maximum bytes of a body. Default: 64 KiB, and 16 for each token of the maximum length. */
  readonly maxBodyBytes?: number;
  /** Maximum time from a request to the end of its texts, in milliseconds. Default: 10 minutes. */
  readonly timeLimitMs?: number;
}

export interface ModelServer {
  /** The address, such as http://127.0.0.1:8000. */
  readonly url: string;
  /** The required token. */
  readonly token: string | undefined;
  /** Resolves with the error if the device has failed. Texts are no longer possible then. */
  readonly failure: Promise<Error>;
  /** Accepts no more requests, waits for texts up to a time, and ends. */
  close(drainMs?: number): Promise<void>;
}

const maxHeaderBytes = 16_384;
const maxUrlLength = 2048;

/** Serves a model until it is closed. */
export async function openModelServer(options: ModelServerOptions): Promise<ModelServer> {
  const { host = "127.0.0.1", port = 0 } = options;
  const token = options.token ?? (isLoopback(host) ? undefined : makeToken());
  if (token !== undefined) requireToken(token);
  const server = createServer({
    maxHeaderSize: maxHeaderBytes,
    connectionsCheckingInterval: checkingIntervalOf(options),
  });
  limitConnections(server, options);
  answerBrokenRequests(server, maxHeaderBytes, ({ status, error }) =>
    errorBody(new RequestError(status, error)),
  );
  const bound = await listen(server, "The server", { host, port });
  const access = { hosts: hostsOf(host, bound), token };
  const service = new Service(options, access, server);
  return {
    url: `http://${urlHost(host, bound)}`,
    token,
    failure: service.failure,
    close: (drainMs = 0) => service.close(drainMs),
  };
}

class Service {
  readonly failure: Promise<Error>;
  readonly #server: Server;
  readonly #access: AccessRules;
  readonly #rules: RequestRules;
  readonly #queue: TextQueue;
  readonly #bodies: BodyReader;
  readonly #timeLimitMs: number;
  readonly #startedS = Math.floor(Date.now() / 1000);
  #fail: (error: Error) => void = () => undefined;
  #isDraining = false;
  #hasFailed = false;

  constructor(options: ModelServerOptions, access: AccessRules, server: Server) {
    const { generator, maxWaiting = 64, timeLimitMs = 600_000 } = options;
    const { maxBodyBytes = 65_536 + 16 * generator.maxLength } = options;
    this.#rules = rulesOf(options);
    this.#access = access;
    this.#server = server;
    this.#queue = new TextQueue(generator, maxWaiting);
    this.#bodies = new BodyReader(maxBodyBytes);
    this.#timeLimitMs = timeLimitMs;
    this.failure = new Promise((resolve) => {
      this.#fail = resolve;
    });
    server.on("request", (request, response) => void this.#answer(request, response));
  }

  async close(drainMs: number): Promise<void> {
    this.#isDraining = true;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    const stopping = new RequestError(503, "The server is stopping. Try again.", { retryAfterS: 1 });
    const timer = setTimeout(() => this.#queue.abortAll(stopping), drainMs);
    await this.#queue.idle();
    clearTimeout(timer);
    // The last answers are written in the turn after their texts have ended.
    await new Promise((resolve) => setImmediate(resolve));
    this.#server.closeIdleConnections();
    const cut = setTimeout(() => this.#server.closeAllConnections(), 1000);
    await closed;
    clearTimeout(cut);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    response.on("error", () => undefined);
    try {
      await this.#route(request, response);
    } catch (error) {
      const rejected = toRequestError(error);
      if (rejected.status === 500) this.#noteFailure(error);
      sendError(response, rejected);
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = "/", method = "" } = request;
    if (url.length > maxUrlLength) throw new RequestError(400, "The address is too long.");
    const [path = "/"] = url.split("?");
    if (path === "/health") return this.#answerHealth(method, response);
    requireAccess(this.#access, request);
    if (path === "/v1/models" || path.startsWith("/v1/models/")) {
      requireMethod(method, ["GET", "HEAD"]);
      return this.#answerModels(path, response);
    }
    const kind = kindOf(path);
    if (!kind) {
      throw new RequestError(
        404,
        "Not found. Use /v1/chat/completions, /v1/completions, /v1/models or /health.",
      );
    }
    requireMethod(method, ["POST"]);
    if (this.#isDraining)
      throw new RequestError(503, "The server is stopping. Try again.", { retryAfterS: 1 });
    await this.#answerTexts(kind, request, response);
  }

  async #answerTexts(kind: RequestKind, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await this.#bodies.read(request);
    const textRequest = readTextRequest(kind, body, this.#rules);
    const job = this.#queue.start(textRequest);
    const limitMs = this.#timeLimitMs;
    const timer = setTimeout(
      () => job.abort(new RequestError(504, `The texts took longer than ${limitMs} ms.`)),
      limitMs,
    );
    const leave = (): void => job.abort(new RequestError(408, "The client has closed the connection."));
    response.once("close", leave);
    // Texts may take longer than the limit of idle connections. Then the time to read the answer is limited again.
    const { socket } = request;
    const idleMs = this.#server.timeout;
    socket.setTimeout(0);
    try {
      await sendTexts(response, textRequest, job, this.#rules.model);
    } finally {
      clearTimeout(timer);
      response.off("close", leave);
      job.abort(new RequestError(503, "The text was cancelled."));
      socket.setTimeout(idleMs);
    }
  }

  #answerModels(path: string, response: ServerResponse): void {
    const model = {
      ...{ id: this.#rules.model, object: "model", created: this.#startedS, owned_by: "holdfast" },
    };
    const isList = path === "/v1/models";
    if (!isList && decode(path.slice("/v1/models/".length)) !== this.#rules.model) {
      throw new RequestError(404, "This model is not here. GET /v1/models lists the models.", {
        code: "model_not_found",
      });
    }
    sendJson(response, 200, isList ? { object: "list", data: [model] } : model);
  }

  /** For probes: they need no token, and learn nothing about texts. */
  #answerHealth(method: string, response: ServerResponse): void {
    requireMethod(method, ["GET", "HEAD"]);
    const status = this.#hasFailed ? "failed" : this.#isDraining ? "stopping" : "ok";
    const { running, waiting } = this.#queue;
    sendJson(response, status === "ok" ? 200 : 503, { status, running, waiting });
  }

  /** After an error of the device, no text is possible. */
  #noteFailure(error: unknown): void {
    const isDevice =
      error instanceof HoldfastError && ["DRIVER_FAILED", "KERNEL_FAILED", "CLOSED"].includes(error.code);
    if (!isDevice) return;
    this.#hasFailed = true;
    this.#fail(error);
  }
}

function rulesOf({ generator, name, defaults = {}, ...options }: ModelServerOptions): RequestRules {
  const { tokenizer, maxLength } = generator;
  if (!tokenizer) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "The generator of a server has no tokenizer. Pass one: new Generator(model, { tokenizer }).",
    );
  }
  return {
    ...{ model: name, tokenizer, defaults },
    maxPrompt: Math.min(options.maxPrompt ?? maxLength - 1, maxLength - 1),
    maxTokens: Math.min(options.maxTokens ?? maxLength, maxLength),
    maxTexts: options.maxTexts ?? 16,
    maxTokenLength: maxTokenLengthOf(tokenizer),
  };
}

function maxTokenLengthOf(tokenizer: Tokenizer): number {
  let longest = 1;
  for (let id = 0; id < tokenizer.vocabularySize; id++)
    longest = Math.max(longest, tokenizer.tokenOf(id)?.length ?? 0);
  return longest;
}

function kindOf(path: string): RequestKind | undefined {
  if (path === "/v1/chat/completions") return "chat";
  return path === "/v1/completions" ? "completion" : undefined;
}

function requireMethod(method: string, allowed: readonly string[]): void {
  if (!allowed.includes(method))
    throw new RequestError(405, `The method is ${method}. Use ${allowed.join(" or ")}.`);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Answers an error, unless the client is gone or an answer has begun. */
function sendError(response: ServerResponse, error: RequestError): void {
  if (response.writableEnded) return;
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { status, details } = error;
  // The rest of a body that is not read must not be taken for the next request.
  const isUnread = !response.req.complete;
  sendJson(response, status, errorBody(error), {
    ...(isUnread && { Connection: "close" }),
    ...(status === 401 && { "WWW-Authenticate": "Bearer" }),
    ...(status === 405 && { Allow: "GET, HEAD, POST" }),
    ...(details.retryAfterS !== undefined && { "Retry-After": String(details.retryAfterS) }),
  });
}
