/** Reads what each rank of a distributed run did. Like the other records, the files grow while they are read. */

import { join } from "node:path";
import { asFileError, errorCode } from "../../data/index.js";
import { readRegularFile } from "../../files/index.js";
import type { RankRecord, RankSteps } from "../../records/index.js";
import { MiB } from "../../units/index.js";
import { fromJson } from "../files/json.js";
import { rankFiles } from "../run-files.js";
import { RecordFile } from "./record-file.js";
import { toRankSteps, toRanks } from "./record-shapes.js";

/** A rank and its steps, oldest first. */
export interface RankReading extends RankRecord {
  readonly spans: readonly RankSteps[];
}

export interface RanksReading {
  /** Empty for a run of one process. */
  readonly ranks: readonly RankReading[];
  readonly messages: readonly string[];
}

/** Reads a run's folder once. Never throws. */
export function readRanks(path: string): RanksReading {
  return new RanksReader(path).read();
}

/** Reads a run's folder repeatedly; each time only the new lines. */
export class RanksReader {
  readonly #path: string;
  readonly #files = new Map<number, RecordFile<RankSteps>>();

  constructor(path: string) {
    this.#path = path;
  }

  read(): RanksReading {
    try {
      const messages: string[] = [];
      const ranks = readRankRecords(this.#path).map((rank) => {
        const { records, messages: more } = this.#fileOf(rank.rank).read();
        messages.push(...more);
        return { ...rank, spans: records };
      });
      return { ranks, messages };
    } catch (error) {
      return { ranks: [], messages: [error instanceof Error ? error.message : String(error)] };
    }
  }

  #fileOf(rank: number): RecordFile<RankSteps> {
    const known = this.#files.get(rank);
    if (known) return known;
    const file = new RecordFile(join(this.#path, rankFiles.steps(rank)), toRankSteps, mergeSpans);
    this.#files.set(rank, file);
    return file;
  }
}

const maxRecordBytes = 4 * MiB;

function readRankRecords(folder: string): readonly RankRecord[] {
  const path = join(folder, rankFiles.ranks);
  let text: string;
  try {
    text = readRegularFile(path, maxRecordBytes).toString("utf8");
  } catch (error) {
    if (["ENOENT", "ENOTDIR"].includes(errorCode(error) ?? "")) return [];
    throw asFileError(`${path} can't be read`, path, error);
  }
  return toRanks(fromJson(path, text)).ranks;
}

/** A chart shows no more detail than this. */
const maxSpans = 8192;

/** Merges neighbours while there are too many. */
function mergeSpans(spans: RankSteps[]): RankSteps[] {
  if (spans.length <= maxSpans) return spans;
  const pairs = Array.from({ length: Math.ceil(spans.length / 2) }, (_, pair) =>
    sumSpans(spans.slice(2 * pair, 2 * pair + 2)),
  );
  return mergeSpans(pairs);
}

/** Spans that follow each other as one. */
export function sumSpans(spans: readonly RankSteps[]): RankSteps {
  const sum = (of: (span: RankSteps) => number): number => spans.reduce((total, span) => total + of(span), 0);
  const { time = 0, step = 0 } = spans.at(-1) ?? {};
  const isSeen = spans.every(({ traffic }) => traffic);
  return {
    ...{ time, step, steps: sum(({ steps }) => steps), ms: sum(({ ms }) => ms) },
    ...(isSeen && {
      traffic: {
        collectives: sum(({ traffic }) => traffic?.collectives ?? 0),
        sentBytes: sum(({ traffic }) => traffic?.sentBytes ?? 0),
        ms: sum(({ traffic }) => traffic?.ms ?? 0),
      },
    }),
  };
}
