/**
 * What the hub knows of every rank, and which ranks are lost: those whose process has ended or failed, that are silent, and that do nothing
 * while others wait for them.
 */

import { type Clock, formatDuration } from "../../units/index.js";
import type { Failure, LostRank, RankIdentity, RankStatus } from "./messages.js";

interface Row {
  readonly identity: RankIdentity;
  status: RankStatus;
  heardMs: number;
  /** When its progress last rose. */
  movedMs: number;
  /** When it began to wait in a collective. */
  waitsSinceMs: number;
  hasEnded: boolean;
  lost: LostRank | undefined;
}

export interface Check {
  readonly what: Failure;
  readonly ranks: readonly LostRank[];
}

const noFailure: Check = { what: "lost", ranks: [] };
const atStart: RankStatus = { progress: 0, doing: "starting", sequence: 0 };

/** How long the ranks must wait in the same different collectives: their statuses are from different moments. */
const disagreementMs = 1000;

export class RankTable {
  readonly size: number;
  readonly #timeoutMs: number;
  readonly #clock: Clock;
  readonly #rows = new Map<number, Row>();
  readonly #offers = new Map<number, { readonly name: string; readonly value: unknown }[]>();
  readonly #startedMs: number;
  #progress = 0;
  /** What the ranks waited in at the last check, if not in the same collective. */
  #disagreement: { readonly states: string; readonly sinceMs: number } | undefined;

  /** `timeoutMs`: how long a rank may be silent, or without progress while others wait for it. */
  constructor(size: number, timeoutMs: number, clock: Clock) {
    this.size = size;
    this.#timeoutMs = timeoutMs;
    this.#clock = clock;
    this.#startedMs = clock.nowMs();
  }

  /** Rises when a rank that waits for no other has done something. */
  get progress(): number {
    return this.#progress;
  }

  get isComplete(): boolean {
    return this.#rows.size === this.size;
  }

  /** True if no rank needs the hub any more. */
  get hasEnded(): boolean {
    return this.isComplete && [...this.#rows.values()].every(({ hasEnded, lost }) => hasEnded || lost);
  }

  get identities(): readonly RankIdentity[] {
    return [...this.#rows.values()].map(({ identity }) => identity).sort((a, b) => a.rank - b.rank);
  }

  /** The ranks that have not connected, and since when they are awaited. */
  get missing(): { readonly ranks: readonly number[]; readonly forMs: number } {
    const ranks = Array.from({ length: this.size }, (_, rank) => rank).filter(
      (rank) => !this.#rows.has(rank),
    );
    return { ranks, forMs: this.#clock.nowMs() - this.#startedMs };
  }

  /** Adds a rank; returns why it is rejected. */
  add(identity: RankIdentity): string | undefined {
    const { rank, size } = identity;
    if (size !== this.size)
      return `rank ${rank} was started as one of ${size} ranks, and rank 0 as one of ${this.size}`;
    if (!Number.isInteger(rank) || rank < 0 || rank >= size) return `there is no rank ${rank} of ${size}`;
    const present = this.#rows.get(rank)?.identity;
    if (present)
      return `rank ${rank} is already there: process ${present.pid} on ${present.host}. Two processes were given the same rank`;
    const nowMs = this.#clock.nowMs();
    this.#rows.set(rank, {
      ...{ identity, status: atStart, heardMs: nowMs, movedMs: nowMs, waitsSinceMs: nowMs },
      ...{ hasEnded: false, lost: undefined },
    });
    return undefined;
  }

  update(rank: number, status: RankStatus): void {
    const row = this.#rows.get(rank);
    if (!row) return;
    const nowMs = this.#clock.nowMs();
    const { status: before } = row;
    // A rank that waits for its GPU again and again makes progress.
    const isNext = status.sequence !== before.sequence;
    const isNewWait = status.waitsForGpu ? isNext || status.progress !== before.progress : isNext;
    if (isNewWait || before.waitsIn === undefined) row.waitsSinceMs = nowMs;
    row.heardMs = nowMs;
    if (status.progress !== before.progress) {
      row.movedMs = nowMs;
      if (status.waitsIn === undefined) this.#progress++;
    }
    row.status = status;
  }

  /** Keeps what a rank offers. Returns all offers of the round when it is complete. */
  offer(
    rank: number,
    name: string,
    value: unknown,
  ): readonly { readonly name: string; readonly value: unknown }[] | undefined {
    const own = this.#offers.get(rank) ?? [];
    own.push({ name, value });
    this.#offers.set(rank, own);
    const queues = Array.from({ length: this.size }, (_, other) => this.#offers.get(other) ?? []);
    if (queues.some(({ length }) => length === 0)) return undefined;
    return queues.flatMap((queue) => queue.splice(0, 1));
  }

  /** The rank has ended as it should. */
  end(rank: number): void {
    const row = this.#rows.get(rank);
    if (row) row.hasEnded = true;
  }

  /** The rank's connection has closed, or it has failed. Returns it if the others need to know. */
  lose(rank: number, why: string): LostRank | undefined {
    const row = this.#rows.get(rank);
    if (!row || row.hasEnded || row.lost) return undefined;
    const { host, pid } = row.identity;
    row.lost = { rank, host, pid, why, doing: doingOf(row) };
    return row.lost;
  }

  /** Ranks that are lost since the last check. */
  check(): Check {
    const nowMs = this.#clock.nowMs();
    const rows = [...this.#rows.values()].filter(({ hasEnded, lost }) => !hasEnded && !lost);
    const found = (row: Row, why: string): readonly LostRank[] =>
      [this.lose(row.identity.rank, why)].filter((lost) => lost !== undefined);
    const limit = formatDuration(this.#timeoutMs);
    const silent = rows
      .filter(({ heardMs }) => nowMs - heardMs > this.#timeoutMs)
      .flatMap((row) =>
        found(
          row,
          `it has sent nothing for ${limit}: its process or machine is stopped, or the network is down`,
        ),
      );
    if (silent.length > 0) return { what: "lost", ranks: silent };
    const waiting = rows.filter(({ status }) => status.waitsIn !== undefined);
    const hasWaitedLong = waiting.some(({ waitsSinceMs }) => nowMs - waitsSinceMs > this.#timeoutMs);
    if (waiting.length === rows.length) {
      const waitsForGpu = rows.some(({ status }) => status.waitsForGpu);
      return waitsForGpu ? this.#checkGpus(rows, nowMs) : this.#checkAgreement(rows, hasWaitedLong, nowMs);
    }
    this.#disagreement = undefined;
    if (!hasWaitedLong) return noFailure;
    const idle = rows
      .filter(({ status, movedMs }) => status.waitsIn === undefined && nowMs - movedMs > this.#timeoutMs)
      .flatMap((row) =>
        found(row, `it has made no progress for ${limit} while ${waitersOf(waiting)} for it`),
      );
    return { what: "lost", ranks: idle };
  }

  /** All ranks wait, and the GPU of some may work on its own: only long waits of all of them tell that a collective does not end. */
  #checkGpus(rows: readonly Row[], nowMs: number): Check {
    this.#disagreement = undefined;
    if (!rows.every(({ waitsSinceMs }) => nowMs - waitsSinceMs > this.#timeoutMs)) return noFailure;
    const isSame = new Set(rows.map(({ status }) => status.waitsIn)).size === 1;
    const why = isSame
      ? `every rank has waited for its GPU for ${formatDuration(this.#timeoutMs)}: a collective does not complete, because of the network between the GPUs, or because the ranks run different ones`
      : "it waits in another collective";
    return { what: isSame ? "lost" : "differ", ranks: this.#loseAll(rows, why) };
  }

  /** All ranks wait: in the same collective, unless their programs differ. */
  #checkAgreement(rows: readonly Row[], hasWaitedLong: boolean, nowMs: number): Check {
    const states = rows.map(({ status }) => `${status.sequence} ${status.waitsIn}`);
    if (new Set(states).size <= 1) {
      this.#disagreement = undefined;
      if (!hasWaitedLong) return noFailure;
      const why = `every rank has been in this collective for ${formatDuration(this.#timeoutMs)}: the network, or the library that moves the bytes, does not complete it`;
      return { what: "lost", ranks: this.#loseAll(rows, why) };
    }
    const seen = states.join("\n");
    if (this.#disagreement?.states !== seen) this.#disagreement = { states: seen, sinceMs: nowMs };
    const { sinceMs } = this.#disagreement;
    // A rank that was not heard since may have gone on.
    const areNew = rows.every(({ heardMs }) => heardMs > sinceMs);
    if (!areNew || nowMs - sinceMs < disagreementMs) return noFailure;
    return { what: "differ", ranks: this.#loseAll(rows, "it waits in another collective") };
  }

  #loseAll(rows: readonly Row[], why: string): readonly LostRank[] {
    return rows.flatMap(({ identity }) => this.lose(identity.rank, why) ?? []);
  }
}

function waitersOf(waiting: readonly Row[]): string {
  const ranks = waiting.map(({ identity }) => identity.rank).sort((a, b) => a - b);
  if (ranks.length === 1) return `rank ${ranks[0]} waits`;
  const shown = ranks.slice(0, 8).join(", ");
  return ranks.length > 8 ? `${ranks.length} ranks wait` : `ranks ${shown} wait`;
}

function doingOf({ status: { waitsIn, doing, sequence } }: Row): string {
  return waitsIn === undefined ? doing : `waiting in ${waitsIn}, its collective ${sequence}`;
}
