/**
 * Writes events of the Trace Event Format and their tracks. Times are whole nanoseconds until they are written, so that nested events
 * stay nested after a viewer's rounding.
 */

/** Numbers and strings of an event. Non-finite and unknown values are omitted. */
export type EventArgs = Readonly<Record<string, number | string | undefined>>;

interface EventFields {
  readonly pid: number;
  readonly tid: number;
  readonly name: string;
}

/** An event in the file; `ts` and `dur` are in microseconds. */
export type TraceEvent =
  | (EventFields & { readonly ph: "M"; readonly args: EventArgs })
  | (EventFields & { readonly ph: "C"; readonly ts: number; readonly args: EventArgs })
  | (EventFields & {
      readonly ph: "X";
      readonly ts: number;
      readonly dur: number;
      readonly cat: string;
      readonly args: EventArgs;
    })
  | (EventFields & {
      readonly ph: "i";
      readonly ts: number;
      readonly s: "t";
      readonly cat: string;
      readonly args: EventArgs;
    });

/** An event with a duration. */
export interface TraceSpan {
  readonly name: string;
  readonly cat: string;
  /** Milliseconds since 1970, or since `fromMs`. */
  readonly startMs: number;
  readonly durationMs: number;
  readonly args?: EventArgs;
  /** Nested spans, in order. */
  readonly inner?: readonly TraceSpan[];
}

export interface Track {
  readonly pid: number;
  readonly tid: number;
}

/** Thread ids are unique over all processes of a trace, of which a run of many ranks has thousands; a process's first thread has the process's id. */
const firstTid = 100_001;

/** Collects events. The events of a track are written in time order. */
export class TraceWriter {
  readonly #originMs: number;
  readonly #events: TraceEvent[] = [];
  #processes = 0;
  #threads = 0;

  constructor(originMs: number) {
    this.#originMs = originMs;
  }

  get events(): readonly TraceEvent[] {
    return this.#events;
  }

  addProcess(name: string, labels = ""): number {
    const pid = ++this.#processes;
    const describe = (kind: string, args: EventArgs): void => {
      this.#events.push({ ph: "M", pid, tid: pid, name: kind, args });
    };
    describe("process_name", { name });
    describe("process_sort_index", { sort_index: pid });
    if (labels !== "") describe("process_labels", { labels });
    return pid;
  }

  addTrack(pid: number, name: string): Track {
    const tid = firstTid + this.#threads++;
    this.#events.push({ ph: "M", pid, tid, name: "thread_name", args: { name } });
    this.#events.push({ ph: "M", pid, tid, name: "thread_sort_index", args: { sort_index: tid } });
    return { pid, tid };
  }

  /**
   * Adds the spans of one track. A span that starts before the end of the previous one is moved there, and nested spans are clipped.
   * Times are relative to `fromMs`, because milliseconds since 1970 are too coarse for kernels.
   */
  addSpans(track: Track, spans: readonly TraceSpan[], fromMs?: number): void {
    const fromNs = fromMs === undefined ? undefined : this.#nanoseconds(fromMs);
    const toNanoseconds = (ms: number): number =>
      fromNs === undefined ? this.#nanoseconds(ms) : fromNs + Math.round(ms * 1e6);
    this.#addNested(track, spans, toNanoseconds, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
  }

  addInstant(
    { pid, tid }: Track,
    instant: {
      readonly name: string;
      readonly cat: string;
      readonly atMs: number;
      readonly args?: EventArgs;
    },
  ): void {
    const { name, cat, atMs, args = {} } = instant;
    const ts = this.#nanoseconds(atMs) / 1000;
    this.#events.push({ ph: "i", s: "t", pid, tid, ts, name, cat, args: withoutUnknown(args) });
  }

  /** Adds a point per value to a curve; nothing if no value is finite. */
  addCounter(pid: number, name: string, atMs: number, values: EventArgs): void {
    const args = withoutUnknown(values);
    if (Object.keys(args).length === 0) return;
    this.#events.push({ ph: "C", pid, tid: pid, ts: this.#nanoseconds(atMs) / 1000, name, args });
  }

  #addNested(
    track: Track,
    spans: readonly TraceSpan[],
    toNanoseconds: (ms: number) => number,
    fromNs: number,
    toNs: number,
  ): void {
    let freeNs = fromNs;
    for (const { name, cat, startMs, durationMs, args = {}, inner = [] } of spans) {
      const begin = Math.min(toNs, Math.max(freeNs, toNanoseconds(startMs)));
      const length = Number.isFinite(durationMs) ? Math.max(0, Math.round(durationMs * 1e6)) : 0;
      const end = Math.min(toNs, begin + length);
      // One nanosecond shorter, because viewers add the two as floats and neighbours could overlap by rounding.
      const times = { ts: begin / 1000, dur: Math.max(0, end - begin - 1) / 1000 };
      this.#events.push({ ph: "X", ...track, ...times, name, cat, args: withoutUnknown(args) });
      this.#addNested(track, inner, toNanoseconds, begin, Math.max(begin, end - 1));
      freeNs = end;
    }
  }

  /** Never before the start of the trace; an invalid time is the start. */
  #nanoseconds(ms: number): number {
    if (!Number.isFinite(ms)) return 0;
    return Math.max(0, Math.round((ms - this.#originMs) * 1e6));
  }
}

function withoutUnknown(args: EventArgs): EventArgs {
  return Object.fromEntries(
    Object.entries(args).filter(([, value]) => typeof value === "string" || Number.isFinite(value)),
  );
}
