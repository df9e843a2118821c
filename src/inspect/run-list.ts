/**
 * Lists the runs: the folders in the folder of runs. Requests are matched against the listed names, so no text of a request becomes a
 * path. Links that lead out of the folder are not followed.
 */

import { lstatSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join, resolve, sep } from "node:path";
import { withFileError } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { inspectionFiles, legacyIncidentsFile, rankFileName, rankFiles, runFiles } from "../train/index.js";

/** The recorder's previous log and its current one. */
export const phaseFiles = ["recorder.old.log", runFiles.recorder] as const;

const { checkpoints, ...recordFiles } = runFiles;

/** All files in a run's folder that the inspector opens, besides those of single ranks. */
const openedFiles: readonly string[] = [
  ...new Set<string>([
    ...Object.values(recordFiles),
    ...Object.values(inspectionFiles),
    legacyIncidentsFile,
    rankFiles.ranks,
    ...phaseFiles,
  ]),
];

export interface ListedRun {
  readonly name: string;
  readonly path: string;
  /** Why the folder is not read; undefined if it is. */
  readonly rejection?: string | undefined;
}

/** The folder to show, and a run in it if one was named. */
export interface ShownFolder {
  readonly root: string;
  readonly run?: string | undefined;
}

/** Distinguishes a run's folder from a folder of runs. */
export function findShown(path: string): ShownFolder {
  const full = resolve(path);
  return withFileError(`${path} can't be read`, path, () => shownAt(path, full));
}

function shownAt(path: string, full: string): ShownFolder {
  if (!statSync(full, { throwIfNoEntry: false })?.isDirectory()) {
    throw new HoldfastError(
      "BAD_FILE",
      `${path} is not a folder. Pass a run's folder, such as runs/NAME, or a folder of runs.`,
      { numbers: { path } },
    );
  }
  return looksLikeRun(full) ? { root: dirname(full), run: basename(full) } : { root: full };
}

/** The runs in a folder, unordered. A named run is included even without a run's files. */
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

/** The run with exactly this name. */
export function findRun(shown: ShownFolder, name: string): ListedRun | undefined {
  return listRuns(shown).find((run) => run.name === name);
}

function looksLikeRun(path: string): boolean {
  return [...openedFiles, checkpoints].some(
    (name) => lstatSync(join(path, name), { throwIfNoEntry: false }) !== undefined,
  );
}

function isFolderInside(path: string, realRoot: string): boolean {
  const target = targetOf(path);
  return target !== undefined && isInside(target, realRoot) && statSync(target).isDirectory();
}

/** Rejects links that lead out of the folder, and files that are not regular, such as pipes. */
function rejectionOf(path: string, realRoot: string): string | undefined {
  for (const name of [...openedFiles, ...rankFilesIn(path)]) {
    const file = join(path, name);
    const link = lstatSync(file, { throwIfNoEntry: false });
    if (!link || link.isFile()) continue;
    const target = link.isSymbolicLink() ? targetOf(file) : file;
    if (target === undefined) return `${name} is a broken link, so the run is not read.`;
    if (!isInside(target, realRoot))
      return `${name} is a link out of the folder of runs, so the run is not read.`;
    if (!statSync(target).isFile()) return `${name} is not a regular file, so the run is not read.`;
  }
  return undefined;
}

/** Those that are not regular files: a run may have thousands. */
function rankFilesIn(path: string): string[] {
  return readdirSync(path, { withFileTypes: true })
    .filter((entry) => rankFileName.test(entry.name) && !entry.isFile())
    .map(({ name }) => name);
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
