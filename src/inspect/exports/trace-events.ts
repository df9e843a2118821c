/**
 * The Trace Event Format's events, as few kinds as are needed, and the tracks that they stand on. Times are kept as whole
 * nanoseconds until they are written: what lies inside another event must do so when a viewer has rounded both.
 */

/** Numbers and texts told with an event; what is not finite or not known is left out. */
export type EventArgs = Readonly<Record<string, number | string | undefined>>;

interface EventFields {
  readonly pid: number;
  readonly tid: number;
  readonly name: string;
}

/** An event as it stands in the file; `ts` and `dur` in microseconds. */
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

/** What lasted. */
export interface TraceSpan {
  readonly name: string;
  readonly cat: string;
  /** Milliseconds since 1970, or since the time that is told with the spans. */
  readonly beginMs: number;
  readonly lastsMs: number;
  readonly args?: EventArgs;
  /** What went on inside it, in order. */
  readonly inner?: readonly TraceSpan[];
}

export interface Track {
  readonly pid: number;
  readonly tid: number;
}

/** Thread numbers of a trace are one set for all processes, and a process's first thread has the process's number. */
const firstTid = 1001;

/** Collects events. What was added to a track is written in the order of time. */
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
   * Spans of one track: one that would begin before the last one's end begins there, and none leaves the one around it. `fromMs`
   * is where their times count from: milliseconds since 1970 are too coarse for kernels.
   */
  addSpans(track: Track, spans: readonly TraceSpan[], fromMs?: number): void {
    const fromNs = fromMs === undefined ? undefined : this.#nanoseconds(fromMs);
    const place = (ms: number): number =>
      fromNs === undefined ? this.#nanoseconds(ms) : fromNs + Math.round(ms * 1e6);
    this.#addInside(track, spans, place, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY);
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
    this.#events.push({ ph: "i", s: "t", pid, tid, ts, name, cat, args: toldOf(args) });
  }

  /** A point of a curve for each value; nothing where none is finite. */
  addCounter(pid: number, name: string, atMs: number, values: EventArgs): void {
    const args = toldOf(values);
    if (Object.keys(args).length === 0) return;
    this.#events.push({ ph: "C", pid, tid: pid, ts: this.#nanoseconds(atMs) / 1000, name, args });
  }

  #addInside(
    track: Track,
    spans: readonly TraceSpan[],
    place: (ms: number) => number,
    fromNs: number,
    toNs: number,
  ): void {
    let freeNs = fromNs;
    for (const { name, cat, beginMs, lastsMs, args = {}, inner = [] } of spans) {
      const begin = Math.min(toNs, Math.max(freeNs, place(beginMs)));
      const length = Number.isFinite(lastsMs) ? Math.max(0, Math.round(lastsMs * 1e6)) : 0;
      const end = Math.min(toNs, begin + length);
      // A nanosecond shorter: viewers add the two up as floats, and a neighbour would cross it by the last bit.
      const times = { ts: begin / 1000, dur: Math.max(0, end - begin - 1) / 1000 };
      this.#events.push({ ph: "X", ...track, ...times, name, cat, args: toldOf(args) });
      this.#addInside(track, inner, place, begin, Math.max(begin, end - 1));
      freeNs = end;
    }
  }

  /** Never before the trace's begin; a time that is none is the begin. */
  #nanoseconds(ms: number): number {
    if (!Number.isFinite(ms)) return 0;
    return Math.max(0, Math.round((ms - this.#originMs) * 1e6));
  }
}

function toldOf(args: EventArgs): EventArgs {
  return Object.fromEntries(
    Object.entries(args).filter(([, value]) => typeof value === "string" || Number.isFinite(value)),
  );
}
