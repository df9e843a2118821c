/** Routes requests: the page, its files, and the data of runs. */

import type { IncomingMessage, ServerResponse } from "node:http";
import type { Rejection } from "./access.js";
import { type Page, policyFor, readPage } from "./assets.js";
import { type LiveOptions, LiveRuns } from "./live.js";
import { plainPage } from "./plain-page.js";
import { rankTable } from "./rank-table.js";
import { type Body, json, safeHeaders } from "./responses.js";
import { runExports } from "./run-exports.js";
import { findRun, type ListedRun, type ShownFolder } from "./run-list.js";
import { listLines, RunView, rejectedDetail } from "./run-view.js";

export interface RouterOptions extends LiveOptions {
  /** The folder of the page's files; default: the build's output. */
  readonly pageFolder?: string | undefined;
}

const defaultPoints = 2000;
const maxPoints = 50_000;
/** Max. rows in memory over all runs; the least recently used runs are dropped. */
const maxCachedRows = 2 ** 23;

export class Router {
  readonly #shown: ShownFolder;
  readonly #page: Page;
  readonly #live: LiveRuns;
  /** In order of use, the latest last. */
  readonly #views = new Map<string, RunView>();

  constructor(shown: ShownFolder, options: RouterOptions = {}) {
    this.#shown = shown;
    this.#page = readPage(options.pageFolder);
    this.#live = new LiveRuns(options);
  }

  close(): void {
    this.#live.close();
  }

  /** "answered" for a streaming answer. */
  async route(
    path: string,
    query: URLSearchParams,
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<Body | Rejection | "answered"> {
    if (path === "/") return this.#index(request, response);
    if (path.startsWith("/assets/")) return this.#asset(path, request, response);
    if (path === "/api/runs") return json(listLines(this.#shown));
    const [, api, runs, encodedName, ...rest] = path.split("/");
    if (api !== "api" || runs !== "runs" || encodedName === undefined) return notFound;
    const name = decode(encodedName);
    const run = name === undefined ? undefined : findRun(this.#shown, name);
    if (!run) return { status: 404, error: "There is no run with this name." };
    return await this.#runRoute(run, rest, query, response);
  }

  async #runRoute(
    run: ListedRun,
    [what, which, ...more]: readonly string[],
    query: URLSearchParams,
    response: ServerResponse,
  ): Promise<Body | Rejection | "answered"> {
    if (run.rejection !== undefined)
      return what === undefined
        ? json(rejectedDetail(run.name, run.rejection))
        : { status: 404, error: run.rejection };
    if (more.length > 0) return notFound;
    const view = this.#viewOf(run);
    if (what === undefined || ["plans", "memory", "ranks", "export"].includes(what)) await view.catchUp();
    if (what === "plans" && which !== undefined) return planAnswer(view, which);
    if (what === "export" && which !== undefined) return exportAnswer(view, which);
    if (which !== undefined) return notFound;
    switch (what) {
      case undefined:
        return json(view.detail());
      case "steps":
        return stepsAnswer(view, query);
      case "memory":
        return json(view.memory());
      case "ranks":
        return json(rankTable(view.ranks().ranks, view.inspection().plans));
      case "phases":
        return json(view.phases());
      case "live":
        return this.#live.listen(run.path, response)
          ? "answered"
          : { status: 503, error: "Too many pages are open. Close one." };
      default:
        return notFound;
    }
  }

  #viewOf(run: ListedRun): RunView {
    const view = this.#views.get(run.path) ?? new RunView(run);
    this.#views.delete(run.path);
    this.#views.set(run.path, view);
    let cachedRows = 0;
    for (const cached of this.#views.values()) cachedRows += cached.steps.rows;
    for (const [path, { steps }] of this.#views) {
      if ((cachedRows <= maxCachedRows && this.#views.size <= 64) || path === run.path) break;
      cachedRows -= steps.rows;
      this.#views.delete(path);
    }
    return view;
  }

  #index(request: IncomingMessage, response: ServerResponse): Body | "answered" {
    const { index, policy } = this.#page;
    if (!index) {
      const content = plainPage(listLines(this.#shown));
      return { type: "text/html; charset=utf-8", content, headers: policyHeader(policyFor([])) };
    }
    return fileAnswer(index, policy, request, response);
  }

  #asset(path: string, request: IncomingMessage, response: ServerResponse): Body | Rejection | "answered" {
    const asset = this.#page.assets.get(path);
    return asset ? fileAnswer(asset, this.#page.policy, request, response) : notFound;
  }
}

const notFound: Rejection = { status: 404, error: "Nothing is at this address." };

const policyHeader = (policy: string) => ({ "Content-Security-Policy": policy });

/** Answers 304 if the browser's copy is current. */
function fileAnswer(
  { type, bytes, etag }: NonNullable<Page["index"]>,
  policy: string,
  request: IncomingMessage,
  response: ServerResponse,
): Body | "answered" {
  const headers = { ...policyHeader(policy), ETag: etag, "Cache-Control": "no-cache" };
  if (request.headers["if-none-match"] !== etag) return { type, content: bytes, headers };
  response.writeHead(304, { ...safeHeaders, ...headers }).end();
  return "answered";
}

function stepsAnswer({ steps }: RunView, query: URLSearchParams): Body | Rejection {
  const requested = { from: query.get("from"), to: query.get("to"), points: query.get("points") };
  for (const [name, text] of Object.entries(requested)) {
    if (text !== null && !/^\d{1,15}$/.test(text))
      return { status: 400, error: `${name} must be a whole number, 0 or more.` };
  }
  const numberOf = (text: string | null): number | undefined => (text === null ? undefined : Number(text));
  const points = Math.min(numberOf(requested.points) ?? defaultPoints, maxPoints);
  if (points === 0) return { status: 400, error: "points must be a whole number, 1 or more." };
  steps.refresh();
  const { columns, ...rest } = steps.points({
    from: numberOf(requested.from),
    to: numberOf(requested.to),
    points,
  });
  const lists = Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, [...values]]));
  return json({ ...rest, columns: lists });
}

function planAnswer(view: RunView, which: string): Body | Rejection {
  const plan = /^\d{1,6}$/.test(which) ? view.inspection().plans[Number(which)] : undefined;
  return plan ? json(plan) : { status: 404, error: "The run has no plan with this index." };
}

function exportAnswer(view: RunView, which: string): Body | Rejection {
  for (const { name, make } of runExports) {
    const match = name.exec(which);
    const body = match && make(view, Number(match[1] ?? 0));
    if (body) return { ...body, saveAs: `${view.name}-${which}` };
  }
  return { status: 404, error: "The run has no such export." };
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
