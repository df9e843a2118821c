/** The rules that hold the layers of src/ in order, as functions over plain lists of files and their imports. */

import { posix } from "node:path";
import { ts } from "./typescript.js";

/** The layers from the bottom up. Those in one row stand side by side and may not import each other. */
export type LayerTable = readonly (readonly string[])[];

/** One source file: its path below src/, and what it imports, just as it is written there. */
export interface SourceImports {
  readonly file: string;
  readonly imports: readonly string[];
}

/** Layers whose sub-folders are closed too: from outside a sub-folder only its index may be imported. */
const layersWithRooms: readonly string[] = ["driver"];

export function readImports(file: string, text: string): SourceImports {
  const { importedFiles } = ts.preProcessFile(upToLastImport(text), true, true);
  return { file, imports: importedFiles.map(({ fileName }) => fileName) };
}

/** How many characters to keep after the last import's keyword: more than any import has. */
const importLength = 300;

/** Most of a file has no imports, and reading it takes most of the time. */
function upToLastImport(text: string): string {
  const last = [...text.matchAll(/\b(?:import|require|define|module)\b|\bfrom\s*["'`]/g)].at(-1);
  return text.slice(0, last ? last.index + importLength : 0);
}

/** Every import that the layers forbid, one sentence each. */
export function importProblems(layers: LayerTable, sources: readonly SourceImports[]): string[] {
  return sources.flatMap((source) => {
    const problem = locationProblem(layers, source.file);
    if (problem !== undefined) return [problem];
    return source.imports.flatMap((specifier) => importProblem(layers, source.file, specifier) ?? []);
  });
}

function locationProblem(layers: LayerTable, file: string): string | undefined {
  const layer = layerOf(file);
  if (layer === undefined) {
    // A declaration file describes what the platform brings; it has no code and stands under every layer.
    const mayStandAlone = file === "index.ts" || file === "internals.ts" || file.endsWith(".d.ts");
    return mayStandAlone
      ? undefined
      : `${file} stands in no layer: only index.ts and internals.ts are in src/ itself.`;
  }
  return heightOf(layers, layer) < 0
    ? `${file} stands in ${layer}/, which the table of layers lacks.`
    : undefined;
}

function importProblem(layers: LayerTable, file: string, specifier: string): string | undefined {
  if (specifier === "holdfast")
    return `${file} imports "holdfast", its own package: import the layer's index.`;
  if (!specifier.startsWith(".")) return undefined;
  const target = posix.join(posix.dirname(file), specifier).replace(/\.js$/, ".ts");
  if (target.startsWith("..")) {
    const isTestSupport = file.endsWith(".test.ts") && target.startsWith("../test/support/");
    return isTestSupport ? undefined : `${file} imports ${specifier}, which lies outside src/.`;
  }

  const passed = closedFolders(file, target).find((folder) => target !== `${folder}/index.ts`);
  if (passed !== undefined) return `${file} imports ${target}, past the index of ${passed}/.`;

  const from = layerOf(file);
  const to = layerOf(target);
  if (from === undefined || from === to) return undefined;
  if (to === undefined) return `${file} imports ${target}, which stands above every layer.`;
  const climb = heightOf(layers, to) - heightOf(layers, from);
  if (climb === 0) return `${file} imports ${target}, but ${to}/ stands beside ${from}/, not below it.`;
  return climb > 0 ? `${file} imports ${target}, but ${to}/ stands above ${from}/.` : undefined;
}

/** The folders that the import enters and that are entered through their index alone, the outermost first. */
function closedFolders(file: string, target: string): string[] {
  const [layer = "", room = "", ...rest] = target.split("/");
  const folders: string[] = [];
  if (room !== "") folders.push(layer);
  // A test may look into its own layer's rooms: it proves what the index doesn't show.
  const isTestOfLayer = file.endsWith(".test.ts") && layerOf(file) === layer;
  if (rest.length > 0 && layersWithRooms.includes(layer) && !isTestOfLayer) folders.push(`${layer}/${room}`);
  return folders.filter((folder) => !file.startsWith(`${folder}/`));
}

function layerOf(file: string): string | undefined {
  const [folder, ...rest] = file.split("/");
  return rest.length > 0 ? folder : undefined;
}

function heightOf(layers: LayerTable, layer: string): number {
  return layers.findIndex((row) => row.includes(layer));
}

/** The text of the comment that a file opens with, behind a `#!` line where there is one; "" without a comment. */
export function openingComment(text: string): string {
  const shebang = ts.getShebang(text) ?? "";
  const [first] = ts.getLeadingCommentRanges(text, shebang.length) ?? [];
  if (first === undefined) return "";
  return text
    .slice(first.pos, first.end)
    .replace(/^\/\*+|\*+\/$|^\s*\*+ ?|^\/\/ ?/gm, "")
    .trim();
}
