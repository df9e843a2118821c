/**
 * Reads what a run has left for those who look at it: its plans, where its memory stood, its trouble. The files grow while they are
 * read, so a reader goes on where it stopped; a run that was resumed has cut them, and then it reads them anew.
 */

import { closeSync } from "node:fs";
import { basename, join } from "node:path";
import { errorCode } from "../../data/index.js";
import { openRegularFile, readSpan } from "../../files/index.js";
import { formatBytes, MiB } from "../../units/index.js";
import { fromJson } from "../files/json.js";
import { type RecordReader, toMemorySample, toPlan, toTrouble } from "./record-shapes.js";
import { inspectionFiles, type MemorySample, type PlanRecord, type TroubleRecord } from "./records.js";
import { StallReports } from "./stall-reports.js";

/** All that these files tell. What can't be read is left out, with a message. */
export interface InspectionReading {
  /** In the order in which they were first noted. */
  readonly plans: readonly PlanRecord[];
  readonly memory: readonly MemorySample[];
  readonly trouble: readonly TroubleRecord[];
  readonly messages: readonly string[];
}

/** Reads a run's folder once. Nothing is an error; files that are not there are empty. */
export function readInspection(path: string): InspectionReading {
  return new InspectionReader(path).read();
}

/** Reads a run's folder again and again, and each time only what has come. */
export class InspectionReader {
  readonly #plans: RecordFile<PlanRecord>;
  readonly #memory: RecordFile<MemorySample>;
  readonly #trouble: RecordFile<TroubleRecord>;
  readonly #stalls: StallReports;

  constructor(path: string) {
    this.#plans = new RecordFile(join(path, inspectionFiles.plans), toPlan, thinPlans);
    this.#memory = new RecordFile(join(path, inspectionFiles.memory), toMemorySample, thinSamples);
    this.#trouble = new RecordFile(join(path, inspectionFiles.trouble), toTrouble, lastTrouble);
    this.#stalls = new StallReports(path);
  }

  /**
   * Reads a piece of what has come, of a few megabytes at most; whether there is more. A server that calls this between other
   * work, until it is false, does not keep its other clients waiting when it then calls `read()`.
   */
  advance(): boolean {
    return [this.#plans, this.#memory, this.#trouble].some((file) => file.advance());
  }

  read(): InspectionReading {
    const [plans, memory, trouble] = [this.#plans.read(), this.#memory.read(), this.#trouble.read()];
    const stalls = this.#stalls.read();
    const messages = [plans, memory, trouble, stalls].flatMap((read) => read.messages);
    const told = [...trouble.records, ...stalls.records].sort((a, b) => a.time - b.time);
    return { plans: latestOf(plans.records), memory: memory.records, trouble: told, messages };
  }
}

/** Of the records about one plan the last: it has the times too, once they were measured. */
function latestOf(plans: readonly PlanRecord[]): PlanRecord[] {
  return [...new Map(plans.map((plan) => [`${plan.name}\n${plan.inputs}`, plan])).values()];
}

/** More samples than this say no more; a run of a week has 300,000. */
const maxSamples = 20_000;

/** Half as many where there are too many: of two neighbours the one with more memory in use, and the last. */
function thinSamples(samples: MemorySample[]): MemorySample[] {
  if (samples.length <= maxSamples) return samples;
  const kept = samples.filter((sample, index) => {
    const neighbour = samples[index % 2 === 0 ? index + 1 : index - 1];
    const isLast = index === samples.length - 1;
    return (
      !neighbour ||
      isLast ||
      sample.used > neighbour.used ||
      (sample.used === neighbour.used && index % 2 === 0)
    );
  });
  return thinSamples(kept);
}

/** A page shows no more; a run has a few plans, and seldom any trouble. */
const maxPlans = 4096;
const maxTrouble = 10_000;

function thinPlans(plans: PlanRecord[]): PlanRecord[] {
  return plans.length <= maxPlans ? plans : latestOf(plans).slice(-maxPlans);
}

function lastTrouble(trouble: TroubleRecord[]): TroubleRecord[] {
  return trouble.length <= maxTrouble ? trouble : trouble.slice(-maxTrouble);
}

/** A file larger than this is no run's, or one that no page could show. */
const maxBytes = 512 * MiB;
/** So much is read at a time; a longer line takes as much as it needs, up to a limit. */
const pieceBytes = 4 * MiB;
const maxLineBytes = 64 * MiB;
/** After so many damaged lines the rest of a file is left out: each takes as long as hundreds of others. */
const maxDamaged = 1000;
/** So many damaged lines of a file are told one by one; the others are counted. */
const maxTold = 3;
/** So many bytes before the place where reading stopped must still be the same. */
const markBytes = 64;
const newline = 0x0a;

/** A file with a record a line, to which lines are added. */
class RecordFile<Kept> {
  readonly #path: string;
  readonly #toRecord: RecordReader<Kept>;
  readonly #thin: (records: Kept[]) => Kept[];
  #records: Kept[] = [];
  #damage: string[] = [];
  #damaged = 0;
  #lines = 0;
  /** Bytes of whole lines that were read, and the last of them. */
  #offset = 0;
  #mark: Buffer = Buffer.alloc(0);
  #inode = 0;
  /** Too much of it is damaged: no more is read until the file is another. */
  #isGivenUp = false;

  constructor(
    path: string,
    toRecord: RecordReader<Kept>,
    thin: (records: Kept[]) => Kept[] = (records) => records,
  ) {
    this.#path = path;
    this.#toRecord = toRecord;
    this.#thin = thin;
  }

  /** Reads one piece; whether there is more. */
  advance(): boolean {
    try {
      const { file, stats } = openRegularFile(this.#path);
      try {
        return this.#readPiece(file, stats.size, stats.ino);
      } finally {
        closeSync(file);
      }
    } catch (error) {
      this.#forget();
      if (errorCode(error) !== "ENOENT") this.#tell(error instanceof Error ? error.message : String(error));
      return false;
    }
  }

  read(): { readonly records: readonly Kept[]; readonly messages: readonly string[] } {
    while (this.advance());
    const more = this.#damaged - this.#damage.length;
    const name = basename(this.#path);
    const rest = more > 0 ? [`${more} more lines of ${name} can't be read and are left out.`] : [];
    const end = this.#isGivenUp ? [`The rest of ${name} is not read.`] : [];
    return { records: this.#records, messages: [...this.#damage, ...rest, ...end] };
  }

  #readPiece(file: number, size: number, inode: number): boolean {
    const isSame = inode === this.#inode && size >= this.#offset && this.#isMarkThere(file);
    if (!isSame) this.#forget();
    this.#inode = inode;
    if (size > maxBytes) {
      this.#forget();
      this.#tell(`${this.#path} has ${formatBytes(size)}; at most ${formatBytes(maxBytes)} are read.`);
      return false;
    }
    const isRead = !this.#isGivenUp && this.#readLines(file, size);
    const kept = Math.min(markBytes, this.#offset);
    this.#mark = readSpan(file, this.#offset - kept, kept);
    return isRead && this.#offset < size && !this.#isGivenUp;
  }

  /** The next lines; false where no whole one has come. */
  #readLines(file: number, size: number): boolean {
    for (let length = pieceBytes; this.#offset < size; length *= 2) {
      const bytes = readSpan(file, this.#offset, Math.min(length, size - this.#offset));
      // What stands after the last end of a line is being written, or was cut off.
      const whole = bytes.subarray(0, bytes.lastIndexOf(newline) + 1);
      if (whole.length > 0) {
        this.#takeLines(whole.subarray(0, -1));
        this.#offset += whole.length;
        this.#records = this.#thin(this.#records);
        return true;
      }
      if (bytes.length < length) return false;
      if (length < maxLineBytes) continue;
      const name = basename(this.#path);
      this.#tell(`Line ${this.#lines + 1} of ${name} is longer than ${formatBytes(maxLineBytes)}.`);
      this.#isGivenUp = true;
      return false;
    }
    return false;
  }

  #takeLines(bytes: Buffer): void {
    for (const line of bytes.toString("utf8").split("\n")) {
      this.#take(line);
      if (this.#damaged < maxDamaged) continue;
      this.#isGivenUp = true;
      return;
    }
  }

  #take(line: string): void {
    this.#lines++;
    try {
      this.#records.push(this.#toRecord(fromJson("it", line)));
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      this.#tell(`Line ${this.#lines} of ${basename(this.#path)} is left out: ${problem}`);
    }
  }

  #tell(message: string): void {
    this.#damaged++;
    if (this.#damage.length < maxTold) this.#damage.push(message);
  }

  #isMarkThere(file: number): boolean {
    const length = this.#mark.length;
    return readSpan(file, this.#offset - length, length).equals(this.#mark);
  }

  #forget(): void {
    this.#records = [];
    this.#damage = [];
    this.#damaged = 0;
    this.#isGivenUp = false;
    this.#lines = 0;
    this.#offset = 0;
    this.#mark = Buffer.alloc(0);
  }
}
