/**
 * Which runs there are: the folders in the folder of runs, found by listing it. What somebody asks for is looked up in that list by
 * its name, so no text of a request ever becomes a path; links that lead out of the folder are not followed.
 */

import { lstatSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join, resolve, sep } from "node:path";
import { withFileError } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { inspectionFiles, legacyIncidentsFile, runFiles } from "../train/index.js";

/** The recorder's log, and before it what it was before it became full. */
export const phaseFiles = ["recorder.old.log", runFiles.recorder] as const;

const { checkpoints, ...ownFiles } = runFiles;

/** All files of a run's folder that are ever opened. */
const readFiles: readonly string[] = [
  ...new Set<string>([
    ...Object.values(ownFiles),
    ...Object.values(inspectionFiles),
    legacyIncidentsFile,
    ...phaseFiles,
  ]),
];

export interface ListedRun {
  readonly name: string;
  readonly path: string;
  /** Why nothing in it is read; undefined where it may be. */
  readonly rejection?: string | undefined;
}

/** What was asked to be shown: a folder of runs, and one of them where it was named. */
export interface ShownFolder {
  readonly root: string;
  readonly run?: string | undefined;
}

/** Tells a run from a folder of runs. */
export function findShown(path: string): ShownFolder {
  const full = resolve(path);
  return withFileError(`${path} can't be read`, path, () => shownAt(path, full));
}

function shownAt(path: string, full: string): ShownFolder {
  if (!statSync(full, { throwIfNoEntry: false })?.isDirectory()) {
    throw new HoldfastError(
      "BAD_FILE",
      `${path} is no folder. Give a run's folder, such as runs/NAME, or the folder that holds runs.`,
      { numbers: { path } },
    );
  }
  return looksLikeRun(full) ? { root: dirname(full), run: basename(full) } : { root: full };
}

/** The runs in a folder, in no order; one that is named is there even where it has none of a run's files. */
export function listRuns(shown: ShownFolder): ListedRun[] {
  return withFileError(`${shown.root} can't be read`, shown.root, () => runsIn(shown));
}

function runsIn({ root, run }: ShownFolder): ListedRun[] {
  const real = realpathSync(root);
  return readdirSync(root, { withFileTypes: true }).flatMap((entry) => {
    const path = join(root, entry.name);
    const isFolder = entry.isDirectory() || (entry.isSymbolicLink() && isFolderInside(path, real));
    if (!isFolder || !(entry.name === run || looksLikeRun(path))) return [];
    return [{ name: entry.name, path, rejection: rejectionOf(path, real) }];
  });
}

/** The run of this very name. */
export function findRun(shown: ShownFolder, name: string): ListedRun | undefined {
  return listRuns(shown).find((run) => run.name === name);
}

function looksLikeRun(path: string): boolean {
  return [...readFiles, checkpoints].some(
    (name) => lstatSync(join(path, name), { throwIfNoEntry: false }) !== undefined,
  );
}

function isFolderInside(path: string, realRoot: string): boolean {
  const target = targetOf(path);
  return target !== undefined && isInside(target, realRoot) && statSync(target).isDirectory();
}

/** A link that leads away, or what would never end when it is read, such as a pipe. */
function rejectionOf(path: string, realRoot: string): string | undefined {
  for (const name of readFiles) {
    const file = join(path, name);
    const link = lstatSync(file, { throwIfNoEntry: false });
    if (!link || link.isFile()) continue;
    const target = link.isSymbolicLink() ? targetOf(file) : file;
    if (target === undefined) return `${name} is a link that leads nowhere; nothing of the run is read.`;
    if (!isInside(target, realRoot))
      return `${name} is a link out of the folder of runs; nothing of the run is read.`;
    if (!statSync(target).isFile()) return `${name} is no file; nothing of the run is read.`;
  }
  return undefined;
}

function targetOf(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}

function isInside(path: string, realRoot: string): boolean {
  return path.startsWith(realRoot.endsWith(sep) ? realRoot : realRoot + sep);
}
