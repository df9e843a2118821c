/** The folders in which CUDA's libraries may lie, as far as they exist: of drivers, of toolkits and of pip's packages. */

import { existsSync, readdirSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";

export interface FolderSearch {
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Stands before every path, so that a test can bring its own file system. */
  readonly root?: string;
  readonly architecture?: string;
}

/** What the setting names; auto is as good as none. */
export function wantedFolder({ environment = process.env }: FolderSearch): string | undefined {
  const { HOLDFAST_CUDA_PATH: folder } = environment;
  return folder && folder !== "auto" ? folder : undefined;
}

/** Where the setting says that they are. */
export function listWantedFolders(search: FolderSearch): string[] {
  const wanted = wantedFolder(search);
  if (wanted === undefined) return [];
  const { expand, inside } = lookFrom(search);
  return distinct([...expand(resolve(wanted)), ...inside(resolve(wanted))]);
}

/** Where they are put. `pipFolders` are those of pip's packages that have the library, below site-packages. */
export function listUsualFolders(search: FolderSearch, pipFolders: readonly string[]): string[] {
  const { expand, named, inside, triplet, home } = lookFrom(search);
  const toolkits = [
    ...named("CUDA_HOME", "CUDA_PATH"),
    "/usr/local/cuda",
    "/usr/local/cuda-*",
    "/opt/cuda",
    ...named("CONDA_PREFIX"),
  ];
  const ofSystem = [
    `/usr/lib/${triplet}`,
    `/usr/lib/${triplet}/nvidia/current`,
    "/usr/lib64",
    "/usr/lib/wsl/lib",
  ];
  const pythons = [
    ...named("VIRTUAL_ENV", "CONDA_PREFIX"),
    join(home, ".local"),
    "/usr/local",
    "/usr",
    "/opt/*",
    "/opt/*/.venv",
  ];
  const sites = pythons.flatMap((python) =>
    ["site-packages", "dist-packages"].map((name) => join(python, "lib/python3*", name)),
  );
  const ofPip = sites.flatMap((site) => pipFolders.flatMap((folder) => expand(join(site, folder))));
  return distinct([...toolkits.flatMap(inside), ...ofSystem.flatMap(expand), ...ofPip]);
}

function lookFrom({ environment = process.env, root = "/", architecture = process.arch }: FolderSearch) {
  const { targets, triplet } = namesOf(architecture);
  const parts = ["lib64", "lib", ...targets.map((target) => `targets/${target}/lib`)];
  const expand = (pattern: string) => expandStars(root, pattern);
  return {
    triplet,
    home: environment["HOME"] || homedir(),
    expand,
    /** The folders of a toolkit that hold its libraries. */
    inside: (toolkit: string) => parts.flatMap((part) => expand(join(toolkit, part))),
    /** The values of those variables that are set. */
    named: (...variables: string[]) => variables.flatMap((variable) => environment[variable] || []),
  };
}

/** What NVIDIA and Debian call a processor in the names of folders. */
function namesOf(architecture: string): { readonly targets: readonly string[]; readonly triplet: string } {
  return architecture === "arm64"
    ? { targets: ["sbsa-linux", "aarch64-linux"], triplet: "aarch64-linux-gnu" }
    : { targets: ["x86_64-linux"], triplet: "x86_64-linux-gnu" };
}

/** The folders that a path stands for; a star is any part of a name. Of several versions the newest comes first. */
function expandStars(root: string, pattern: string): string[] {
  let folders = [root];
  for (const part of pattern.split("/").filter((one) => one !== "")) {
    folders = folders.flatMap((folder) => matching(folder, part).map((name) => join(folder, name)));
  }
  return folders.filter((folder) => existsSync(folder));
}

function matching(folder: string, part: string): string[] {
  if (!part.includes("*")) return [part];
  const [start = "", end = ""] = part.split("*");
  try {
    return readdirSync(folder)
      .filter((name) => name.startsWith(start) && name.endsWith(end))
      .sort(newestFirst);
  } catch {
    return [];
  }
}

/** By their numbers: python3.9 comes behind python3.13, and cuda-13.0 before cuda-12.9. */
function newestFirst(one: string, other: string): number {
  const [numbers, others] = [one, other].map((name) => name.match(/\d+/g)?.map(Number) ?? []) as [
    number[],
    number[],
  ];
  for (const [index, number] of numbers.entries()) {
    const difference = (others[index] ?? -1) - number;
    if (difference !== 0) return difference;
  }
  return others.length - numbers.length;
}

/** Each folder once, under the first of its names: toolkits are full of links. */
function distinct(folders: readonly string[]): string[] {
  const places = new Map<string, string>();
  for (const folder of folders) {
    const place = realpathSync(folder);
    if (!places.has(place)) places.set(place, folder);
  }
  return [...places.values()];
}
