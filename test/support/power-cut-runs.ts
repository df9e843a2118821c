/** A recorded run, and its remains after a power cut at any of its moments. */

import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { stateOfRun } from "../../src/crossasset/index.js";
import { exitCodes } from "../../src/errors/index.js";
import { readRun } from "../../src/train/index.js";
import { DisturbedRuns, requireEnd } from "./disturbed-runs.js";
import { type Change, type ChangeLog, cutPower, recordChanges, seededDraw } from "./power-loss.js";

export class CutRuns {
  readonly #folder: string;
  readonly #runs: DisturbedRuns;
  readonly #log: ChangeLog;

  private constructor(folder: string, runs: DisturbedRuns, log: ChangeLog) {
    this.#folder = folder;
    this.#runs = runs;
    this.#log = log;
  }

  /** Trains, is stopped and resumes, and records every change. */
  static async prepare(folder: string): Promise<CutRuns> {
    const runs = await DisturbedRuns.prepare(join(folder, "undisturbed"));
    const out = join(folder, "recorded", "run");
    const log = await recordChanges(join(folder, "recorded"), async () => {
      requireEnd(await runs.run("train", out), exitCodes.stopped.code);
      requireEnd(await runs.run("resume", out), exitCodes.ok.code);
    });
    return new CutRuns(folder, runs, log);
  }

  /** The same run, as if it had synchronized nothing. */
  withoutSynchronization(): CutRuns {
    const { root, folders } = this.#log;
    const changes = this.#log.changes.filter(({ kind }) => !kind.startsWith("sync"));
    return new CutRuns(this.#folder, this.#runs, { root, folders, changes });
  }

  /** The cut comes after this many changes, at most. */
  get moments(): number {
    return this.#log.changes.length;
  }

  /**
   * Cuts the power and resumes; the seed determines the lost data. Returns the progress that the run reported
   * after the cut.
   */
  async cut(moment: number, seed: number): Promise<ReturnType<typeof stateOfRun>> {
    const root = join(this.#folder, "cut");
    rmSync(root, { recursive: true, force: true });
    cutPower(this.#log, moment, root, seededDraw(seed));
    const last = this.#log.changes[moment - 1];
    const out = join(root, "run");
    const state = stateOfRun(out);
    const steps = readRun(out).checkpoints.map(({ step }) => step);
    const saved = savedBefore(this.#log.changes.slice(0, moment));
    assert.ok(
      saved === undefined || state !== "none",
      `a run with ${saved} saved steps is gone: ${moment}, seed ${seed}`,
    );
    assert.ok((steps.at(-1) ?? 0) >= (saved ?? 0), `step ${saved} was saved, and ${steps} are left`);
    await this.#runs.resumeToEnd(out, `a cut after change ${moment}, ${last?.kind}, seed ${seed}`);
    return state;
  }
}

/** The step of the latest checkpoint whose save had returned; undefined if not even the run's creation had. */
function savedBefore(changes: readonly Change[]): number | undefined {
  let saved: number | undefined;
  const written = new Map<number, number>();
  for (const change of changes) {
    if (change.kind === "name") {
      const [, step] = /\0step-(\d+)\.safetensors$/.exec(change.name) ?? [];
      if (step !== undefined || change.name.endsWith("\0run.json"))
        written.set(change.folder, Number(step ?? 0));
    } else if (change.kind === "syncFolder" && written.has(change.folder))
      saved = Math.max(saved ?? 0, written.get(change.folder) ?? 0);
  }
  return saved;
}
