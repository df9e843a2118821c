/**
 * Reads the plans, memory samples and incidents of a run. The files grow while they are read: a reader continues where it
 * stopped. A resumed run cuts the files; the reader then starts again.
 */

import { join } from "node:path";
import type { IncidentRecord, MemorySample, PlanRecord } from "../../records/index.js";
import { inspectionFiles, legacyIncidentsFile } from "../run-files.js";
import { RecordFile } from "./record-file.js";
import { toIncident, toMemorySample, toPlan } from "./record-shapes.js";
import { StallReports } from "./stall-reports.js";

/** The records of a run. An unreadable record is omitted, and a message says why. */
export interface InspectionReading {
  /** In the order of their first records. */
  readonly plans: readonly PlanRecord[];
  readonly memory: readonly MemorySample[];
  /** Oldest first, stall reports included. */
  readonly incidents: readonly IncidentRecord[];
  readonly messages: readonly string[];
}

/** Reads a run's folder once. Never throws; a missing file counts as empty. */
export function readInspection(path: string): InspectionReading {
  return new InspectionReader(path).read();
}

/** Reads a run's folder repeatedly; each time only the new records. */
export class InspectionReader {
  readonly #plans: RecordFile<PlanRecord>;
  readonly #memory: RecordFile<MemorySample>;
  readonly #incidents: RecordFile<IncidentRecord>;
  readonly #legacyIncidents: RecordFile<IncidentRecord>;
  readonly #stalls: StallReports;

  constructor(path: string) {
    this.#plans = new RecordFile(join(path, inspectionFiles.plans), toPlan, thinPlans);
    this.#memory = new RecordFile(join(path, inspectionFiles.memory), toMemorySample, thinSamples);
    const incidentsAt = (name: string): RecordFile<IncidentRecord> =>
      new RecordFile(join(path, name), toIncident, latestIncidents);
    this.#incidents = incidentsAt(inspectionFiles.incidents);
    this.#legacyIncidents = incidentsAt(legacyIncidentsFile);
    this.#stalls = new StallReports(path);
  }

  /**
   * Reads the next few megabytes. Returns true if there is more. A server calls this between other work until it returns false;
   * then `read()` is fast and other clients do not wait.
   */
  advance(): boolean {
    return this.#files().some((file) => file.advance());
  }

  read(): InspectionReading {
    const [plans, memory] = [this.#plans.read(), this.#memory.read()];
    const incidents = [this.#legacyIncidents.read(), this.#incidents.read(), this.#stalls.read()];
    return {
      plans: latestOf(plans.records),
      memory: memory.records,
      incidents: incidents.flatMap(({ records }) => records).sort((a, b) => a.time - b.time),
      messages: [plans, memory, ...incidents].flatMap(({ messages }) => messages),
    };
  }

  #files(): readonly { advance(): boolean }[] {
    return [this.#plans, this.#memory, this.#legacyIncidents, this.#incidents];
  }
}

/** The last record of each plan: only the last one may have measured times. */
function latestOf(plans: readonly PlanRecord[]): PlanRecord[] {
  return [...new Map(plans.map((plan) => [`${plan.name}\n${plan.inputs}`, plan])).values()];
}

/** A chart shows no more detail than this; a run of a week has 300,000 samples. */
const maxSamples = 20_000;

/** Halves the samples while there are too many: keeps the larger of two neighbours, and the last sample. */
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

/** The page shows no more. A run has a few plans and seldom an incident. */
const maxPlans = 4096;
const maxIncidents = 10_000;

function thinPlans(plans: PlanRecord[]): PlanRecord[] {
  return plans.length <= maxPlans ? plans : latestOf(plans).slice(-maxPlans);
}

function latestIncidents(incidents: IncidentRecord[]): IncidentRecord[] {
  return incidents.length <= maxIncidents ? incidents : incidents.slice(-maxIncidents);
}
