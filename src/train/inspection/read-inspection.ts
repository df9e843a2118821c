/**
 * Reads what a run has left for those who look at it: its plans, where its memory stood, its trouble. The files grow while they are
 * read, so a reader goes on where it stopped; a run that was resumed has cut them, and then it reads them anew.
 */

import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { basename, join } from "node:path";
import { codeOf } from "../../data/index.js";
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
    this.#plans = new RecordFile(join(path, inspectionFiles.plans), toPlan);
    this.#memory = new RecordFile(join(path, inspectionFiles.memory), toMemorySample, thinSamples);
    this.#trouble = new RecordFile(join(path, inspectionFiles.trouble), toTrouble);
    this.#stalls = new StallReports(path);
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
function latestOf(plans: readonly PlanRecord[]): readonly PlanRecord[] {
  return [...new Map(plans.map((plan) => [`${plan.name}\n${plan.inputs}`, plan])).values()];
}

/** More samples than this say no more; a run of a week has 300,000. */
const mostSamples = 20_000;

/** Half as many where there are too many: of two neighbours the one with more memory in use, and the last. */
function thinSamples(samples: MemorySample[]): MemorySample[] {
  if (samples.length <= mostSamples) return samples;
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

/** A file larger than this is no run's, or one that no page could show. */
const mostBytes = 512 * MiB;
/** So much is read at a time; a longer line takes as much as it needs. */
const pieceBytes = 8 * MiB;
/** So many damaged lines of a file are told one by one; the others are counted. */
const mostTold = 3;
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

  constructor(
    path: string,
    toRecord: RecordReader<Kept>,
    thin: (records: Kept[]) => Kept[] = (records) => records,
  ) {
    this.#path = path;
    this.#toRecord = toRecord;
    this.#thin = thin;
  }

  read(): { readonly records: readonly Kept[]; readonly messages: readonly string[] } {
    try {
      const file = openSync(this.#path, "r");
      try {
        this.#readFile(file);
      } finally {
        closeSync(file);
      }
    } catch (error) {
      this.#forget();
      if (codeOf(error) !== "ENOENT") this.#tell(error instanceof Error ? error.message : String(error));
    }
    const more = this.#damaged - this.#damage.length;
    const name = basename(this.#path);
    const rest = more > 0 ? [`${more} more lines of ${name} can't be read and are left out.`] : [];
    return { records: this.#records, messages: [...this.#damage, ...rest] };
  }

  #readFile(file: number): void {
    const { size, ino } = fstatSync(file);
    const isSame = ino === this.#inode && size >= this.#offset && this.#isMarkThere(file);
    if (!isSame) this.#forget();
    this.#inode = ino;
    if (size > mostBytes) {
      this.#forget();
      this.#tell(`${this.#path} has ${formatBytes(size)}; at most ${formatBytes(mostBytes)} are read.`);
      return;
    }
    for (let length = pieceBytes; this.#offset < size; ) {
      const bytes = readSpan(file, this.#offset, Math.min(length, size - this.#offset));
      // What stands behind the last end of a line is being written, or was cut off.
      const whole = bytes.subarray(0, bytes.lastIndexOf(newline) + 1);
      if (whole.length === 0 && bytes.length < length) break;
      if (whole.length === 0) length *= 2;
      else for (const line of whole.subarray(0, -1).toString("utf8").split("\n")) this.#take(line);
      this.#offset += whole.length;
      this.#records = this.#thin(this.#records);
    }
    const kept = Math.min(markBytes, this.#offset);
    this.#mark = readSpan(file, this.#offset - kept, kept);
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
    if (this.#damage.length < mostTold) this.#damage.push(message);
  }

  #isMarkThere(file: number): boolean {
    const length = this.#mark.length;
    return readSpan(file, this.#offset - length, length).equals(this.#mark);
  }

  #forget(): void {
    this.#records = [];
    this.#damage = [];
    this.#damaged = 0;
    this.#lines = 0;
    this.#offset = 0;
    this.#mark = Buffer.alloc(0);
  }
}

function readSpan(file: number, from: number, length: number): Buffer {
  const bytes = Buffer.alloc(Math.max(0, length));
  let done = 0;
  while (done < bytes.length) {
    const more = readSync(file, bytes, done, bytes.length - done, from + done);
    if (more === 0) break;
    done += more;
  }
  return bytes.subarray(0, done);
}
