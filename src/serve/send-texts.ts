/** Sends the texts of a request: as one object when all have ended, or as a stream of events. */

import type { ServerResponse } from "node:http";
import type { Generation } from "../generate/index.js";
import { Answers, doneEvent, event, type Usage } from "./answers.js";
import { errorBody, RequestError, toRequestError } from "./request-error.js";
import type { TextJob } from "./text-queue.js";
import type { TextRequest } from "./text-request.js";

/** Bytes that a client may leave unread before its texts are cancelled. */
const maxUnreadBytes = 2 ** 20;

/** Resolves when the answer is written. Throws the error of a text; a stream has ended with it. */
export async function sendTexts(
  response: ServerResponse,
  request: TextRequest,
  job: TextJob,
  model: string,
): Promise<void> {
  const answers = new Answers(request.kind, model);
  await (request.stream
    ? sendStream(response, request, job, answers)
    : sendWhole(response, request, job, answers));
}

async function sendWhole(
  response: ServerResponse,
  request: TextRequest,
  job: TextJob,
  answers: Answers,
): Promise<void> {
  const results = await Promise.all(job.generations.map((generation) => generation.result()));
  for (const { finishReason } of results) requireWhole(finishReason);
  sendJson(response, 200, answers.whole(results, usageOf(request, job)));
}

async function sendStream(
  response: ServerResponse,
  request: TextRequest,
  job: TextJob,
  answers: Answers,
): Promise<void> {
  response.writeHead(200, {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
  });
  const send = (data: unknown): void => void response.write(event(data));
  const sendText = async (generation: Generation, index: number): Promise<void> => {
    const begin = answers.begin(index);
    if (begin !== undefined) send(begin);
    for await (const piece of generation.pieces()) {
      send(answers.piece(index, piece));
      if (response.writableLength > maxUnreadBytes)
        throw new RequestError(408, "The client does not read the stream.");
    }
    const { finishReason } = await generation.result();
    requireWhole(finishReason);
    send(answers.end(index, finishReason));
  };
  try {
    await Promise.all(job.generations.map(sendText));
    if (request.includesUsage) send(answers.usage(usageOf(request, job)));
    response.end(doneEvent);
  } catch (error) {
    // The status is sent, so an event has the error.
    response.end(event(errorBody(toRequestError(error))));
    throw error;
  }
}

/** A text is only cancelled by an error, or for a client that is gone. */
function requireWhole(finishReason: string): void {
  if (finishReason === "cancelled") throw new RequestError(503, "The text was cancelled.");
}

function usageOf({ prompts }: TextRequest, { generations }: TextJob): Usage {
  const sum = (lengths: readonly number[]): number => lengths.reduce((total, length) => total + length, 0);
  return {
    prompt: sum(prompts.map(({ length }) => length)),
    completion: sum(generations.map(({ length }) => length)),
  };
}

/** Sends an object as JSON. */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  const content = JSON.stringify(body);
  response.writeHead(status, {
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": Buffer.byteLength(content),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    ...headers,
  });
  response.end(response.req.method === "HEAD" ? undefined : content);
}
