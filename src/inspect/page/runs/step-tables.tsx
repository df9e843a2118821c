/** The steps of one or several runs for the charts: a coarse overview, and details of the zoomed range. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { isSameRange, type Range } from "../charts/scales.js";
import { fetchJson, retryMs, runPath, ServerRejection } from "../server.js";
import type { StepTable } from "../wire.js";
import { covers, rowsOfSteps, stepRange } from "./steps.js";

const points = 2000;
/** The delay after zooming before details are requested, and the min. interval of refreshes. */
const settleMs = 120;
const refreshMs = 1000;

export interface StepTables {
  /** Each run's table: the zoomed range if there is one. */
  readonly shown: ReadonlyMap<string, StepTable>;
  readonly whole: ReadonlyMap<string, StepTable>;
  /** Why a run's steps are unavailable. */
  readonly rejections: ReadonlyMap<string, string>;
  /** Steps of the longest run. */
  readonly steps: Range | undefined;
  /** The zoomed range; undefined shows everything. */
  readonly range: Range | undefined;
  readonly setRange: (range: Range | undefined) => void;
}

export function useStepTables(names: readonly string[], rows: number): StepTables {
  const [whole, setWhole] = useState<ReadonlyMap<string, StepTable>>(new Map());
  const [details, setDetails] = useState<ReadonlyMap<string, StepTable>>(new Map());
  const [rejections, setRejections] = useState<ReadonlyMap<string, string>>(new Map());
  const [range, setRange] = useState<Range | undefined>(undefined);
  const key = names.join("\n");
  const lastRequest = useRef({ key: "", time: 0 });
  const runsSignal = useRef<AbortSignal | undefined>(undefined);

  // A new run starts with all of its steps.
  const first = names[0];
  const lastFirst = useRef(first);
  if (lastFirst.current !== first) {
    lastFirst.current = first;
    if (range) setRange(undefined);
  }

  const latestWhole = useRef(whole);
  latestWhole.current = whole;

  // Before new requests: those for other runs are obsolete.
  useEffect(() => {
    const controller = new AbortController();
    runsSignal.current = controller.signal;
    return () => controller.abort();
  }, [key]);

  useEffect(() => {
    const runNames = key === "" ? [] : key.split("\n");
    const isOther = lastRequest.current.key !== key;
    const waitMs = isOther ? 0 : Math.max(0, lastRequest.current.time + refreshMs - performance.now());
    const timer = setTimeout(() => {
      // Only the first of the compared runs is updated live.
      const requested = isOther
        ? runNames
        : runNames.slice(0, 1).filter((name) => latestWhole.current.get(name)?.rows !== rows);
      lastRequest.current = { key, time: performance.now() };
      for (const name of requested) void load(name, runsSignal.current);
    }, waitMs);
    return () => clearTimeout(timer);
  }, [key, rows]);

  async function load(name: string, signal: AbortSignal | undefined): Promise<void> {
    try {
      const table = await fetchJson<StepTable>(runPath(name, `/steps?points=${points}`), signal);
      setWhole((last) => new Map(last).set(name, table));
      setRejections((last) => without(last, name));
    } catch (error) {
      if (signal?.aborted) return;
      if (error instanceof ServerRejection) setRejections((last) => new Map(last).set(name, error.message));
      else setTimeout(() => void load(name, signal), retryMs);
    }
  }

  useEffect(() => {
    if (range === undefined) return;
    const controller = new AbortController();
    const timer = setTimeout(() => {
      for (const [name, table] of whole) {
        if (table.columns.step.length >= table.rows) continue;
        const { from, to } = rowsOfSteps(table, range);
        const path = runPath(name, `/steps?from=${from}&to=${to}&points=${points}`);
        fetchJson<StepTable>(path, controller.signal).then(
          (detail) => setDetails((last) => new Map(last).set(name, detail)),
          // The overview stays, with less detail.
          () => {},
        );
      }
    }, settleMs);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [range?.min, range?.max, key]);

  const kept = useMemo(() => new Map(names.flatMap((name) => entryOf(whole, name))), [whole, key]);
  const shown = useMemo(() => {
    const choose = (name: string, table: StepTable): StepTable => {
      const detail = details.get(name);
      return range && detail && covers(detail, range) ? detail : table;
    };
    return new Map([...kept].map(([name, table]) => [name, choose(name, table)]));
  }, [kept, details, range]);
  const steps = useMemo(() => enclosingRange([...kept.values()].map(stepRange)), [kept]);
  return {
    shown,
    whole: kept,
    rejections,
    steps,
    range: range && steps && isSameRange(range, steps) ? undefined : range,
    setRange,
  };
}

function entryOf<Value>(map: ReadonlyMap<string, Value>, name: string): [string, Value][] {
  const value = map.get(name);
  return value === undefined ? [] : [[name, value]];
}

function without<Value>(map: ReadonlyMap<string, Value>, name: string): ReadonlyMap<string, Value> {
  if (!map.has(name)) return map;
  const rest = new Map(map);
  rest.delete(name);
  return rest;
}

function enclosingRange(ranges: readonly (Range | undefined)[]): Range | undefined {
  const defined = ranges.filter((range) => range !== undefined);
  if (defined.length === 0) return undefined;
  return {
    min: Math.min(...defined.map(({ min }) => min)),
    max: Math.max(...defined.map(({ max }) => max)),
  };
}
