/** Requests to the server, its live events, and the state of the connection. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { RunDetail, RunLine, RunStatus } from "./wire.js";

export function runPath(name: string, rest = ""): string {
  return `/api/runs/${encodeURIComponent(name)}${rest}`;
}

/** The server rejected the request. */
export class ServerRejection extends Error {}

const listeners = new Set<(isLost: boolean) => void>();
let isLost = false;

function setConnectionLost(lost: boolean): void {
  if (lost === isLost) return;
  isLost = lost;
  for (const listen of listeners) listen(lost);
}

/** True if the last request did not reach the server. */
export function useIsLost(): boolean {
  const [lost, setLost] = useState(isLost);
  useEffect(() => {
    listeners.add(setLost);
    return () => void listeners.delete(setLost);
  }, []);
  return lost;
}

export async function fetchJson<Answer>(path: string, signal?: AbortSignal): Promise<Answer> {
  let response: Response;
  try {
    response = await fetch(path, { ...(signal && { signal }), headers: { accept: "application/json" } });
  } catch (error) {
    if (!signal?.aborted) setConnectionLost(true);
    throw error;
  }
  setConnectionLost(false);
  if (response.ok) return (await response.json()) as Answer;
  const body: unknown = await response.json().catch(() => undefined);
  const hasError = typeof body === "object" && body !== null && "error" in body;
  throw new ServerRejection(hasError ? String(body.error) : `The server answered ${response.status}.`);
}

export interface Fetched<Answer> {
  readonly answer: Answer | undefined;
  readonly rejection: string | undefined;
}

/** The retry interval while the server is unreachable. */
export const retryMs = 2000;

/** Requests data, again when `version` changes and while the server is unreachable. Keeps the last answer meanwhile. */
export function useFetched<Answer>(path: string | undefined, version: number | string = 0): Fetched<Answer> {
  const [state, setState] = useState<Fetched<Answer> & { path?: string | undefined }>({
    answer: undefined,
    rejection: undefined,
  });
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    if (path === undefined) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    fetchJson<Answer>(path, controller.signal).then(
      (answer) => setState({ path, answer, rejection: undefined }),
      (error: unknown) => {
        if (controller.signal.aborted) return;
        if (error instanceof ServerRejection) setState({ path, answer: undefined, rejection: error.message });
        else timer = setTimeout(() => setAttempt((count) => count + 1), retryMs);
      },
    );
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [path, version, attempt]);
  return state.path === path ? state : { answer: undefined, rejection: undefined };
}

/** The list of runs, refreshed every few seconds while the page is visible. */
export function useRuns(): Fetched<readonly RunLine[]> {
  const [version, setVersion] = useState(0);
  const fetched = useFetched<readonly RunLine[]>("/api/runs", version);
  const isEmpty = fetched.answer?.length === 0;
  useEffect(() => {
    const refresh = (): void => {
      if (!document.hidden) setVersion((count) => count + 1);
    };
    const timer = setInterval(refresh, isEmpty ? 1000 : 3000);
    return () => clearInterval(timer);
  }, [isEmpty]);
  return fetched;
}

export interface LiveRun {
  readonly detail: RunDetail | undefined;
  readonly rejection: string | undefined;
  readonly status: RunStatus | undefined;
  /** The last known number of rows in the step log. */
  readonly rows: number;
  /** Version counters of the memory samples, of the plans and of the ranks. */
  readonly memoryVersion: number;
  readonly planVersion: number;
  readonly rankVersion: number;
}

/** A run and its updates: requested once, then after each change event. */
export function useRun(name: string | undefined): LiveRun {
  const [versions, setVersions] = useState({ detail: 0, memory: 0, plans: 0, ranks: 0 });
  const [live, setLive] = useState<{ name?: string; status?: RunStatus; rows: number }>({ rows: -1 });
  const { answer, rejection } = useFetched<RunDetail>(name && runPath(name), versions.detail);
  const wait = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  useEffect(() => {
    if (name === undefined) return;
    let source: EventSource | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = new Set<string>();
    const applyChanges = (): void => {
      wait.current = undefined;
      const has = (what: string): number => (changed.has(what) ? 1 : 0);
      setVersions(({ detail, memory, plans, ranks }) => ({
        detail: detail + 1,
        memory: memory + has("memory"),
        plans: plans + has("plans"),
        ranks: ranks + has("ranks"),
      }));
      changed.clear();
    };
    const open = (): void => {
      source = new EventSource(runPath(name, "/live"));
      source.onopen = () => setConnectionLost(false);
      source.onerror = () => {
        // A rejection closes the stream for good; after a lost connection, the browser reconnects.
        if (source?.readyState === EventSource.CLOSED) timer = setTimeout(open, retryMs);
        else setConnectionLost(true);
      };
      source.addEventListener("status", ({ data }: MessageEvent<string>) => {
        const status = JSON.parse(data) as RunStatus;
        setLive((last) => ({ rows: last.name === name ? last.rows : -1, name, status }));
      });
      source.addEventListener("rows", ({ data }: MessageEvent<string>) => {
        const { rows } = JSON.parse(data) as { rows: number };
        setLive((last) => ({ ...(last.name === name && last), name, rows }));
      });
      source.addEventListener("changed", ({ data }: MessageEvent<string>) => {
        changed.add((JSON.parse(data) as { what: string }).what);
        wait.current ??= setTimeout(applyChanges, 300);
      });
    };
    open();
    return () => {
      source?.close();
      clearTimeout(timer);
      clearTimeout(wait.current);
      wait.current = undefined;
    };
  }, [name]);

  const isCurrent = live.name === name;
  return {
    detail: answer,
    rejection,
    status: (isCurrent ? live.status : undefined) ?? answer?.status ?? undefined,
    rows: isCurrent ? live.rows : -1,
    memoryVersion: versions.memory,
    planVersion: versions.plans,
    rankVersion: versions.ranks,
  };
}

/** Other runs, without live updates: a comparison needs none. */
export function useDetails(names: readonly string[]): ReadonlyMap<string, RunDetail> {
  const [details, setDetails] = useState<ReadonlyMap<string, RunDetail>>(new Map());
  const key = names.join("\n");
  useEffect(() => {
    const controller = new AbortController();
    for (const name of key === "" ? [] : key.split("\n"))
      fetchJson<RunDetail>(runPath(name), controller.signal).then(
        (detail) => setDetails((last) => new Map(last).set(name, detail)),
        // The list of runs shows the problem.
        () => {},
      );
    return () => controller.abort();
  }, [key]);
  return details;
}
