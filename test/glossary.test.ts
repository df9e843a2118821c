/** Words that were retired do not come back: the sources speak as docs/internals/glossary.md says. */

import assert from "node:assert/strict";
import test from "node:test";
import { filesBelow, readRepositoryFile } from "./support/repository.js";

/** A retired word or identifier. It is looked for in identifiers, comments and texts. */
interface Retired {
  /** Matches anywhere in a line, so give it word boundaries where it needs them. */
  readonly pattern: RegExp;
  readonly instead: string;
  /** Files, by the beginnings of their paths, in which the word has another meaning. */
  readonly except?: readonly string[];
}

/** Add a word here as soon as no source has it; the glossary's last table says what replaced it. */
const retired: readonly Retired[] = [
  { pattern: /handover/i, instead: "PDL" },
  { pattern: /isEarly\b|canBeginEarly|[bB]eginEarly/, instead: "PDL" },
  { pattern: /\bstand-?ins?\b|[sS]tandIn/, instead: "emulator" },
  { pattern: /museum/i, instead: "regressions" },
  { pattern: /imagination|[a-z]Imagin|imagined[A-Z]/, instead: "trace" },
  { pattern: /overhear/i, instead: "intercept" },
  { pattern: /BesideCall|runBeside|[rR]owsBeside/, instead: "combo kernel" },
  { pattern: /FinishedCall|gemmFinish|finishProduct/, instead: "epilogue" },
  { pattern: /[mM]a(k|d)eApart/, instead: "hoist outputs" },
  {
    pattern: /turnWeights|TurnedMatrix|prefersTurned|turnsRight|is(Left|Right)?Turned/,
    instead: "transpose",
  },
  { pattern: /refus(e|al|ing)/i, instead: "reject", except: ["src/train/inspection/"] },
  { pattern: /bringBox|boxInstructions|withBoxes/, instead: "TMA load" },
  { pattern: /(await|set|pass|publish)Gates?\b/, instead: "mbarrier" },
  { pattern: /MatrixMap|matrix-maps/, instead: "tensor map" },
  { pattern: /LentArrays|lent-arrays/, instead: "temporary gradients" },
  { pattern: /\bCohort[A-Z]|cohort[A-Z]/, instead: "step count group" },
  { pattern: /FreeSpace/, instead: "TLSF allocator" },
  { pattern: /GrowingRange|growing-range/, instead: "virtual range" },
  { pattern: /CaptureGate|capture-gate/, instead: "capture state" },
  { pattern: /enclosure|[uU]nenclosed|isEnclosed|keeperOf/i, instead: "sub-arena" },
  { pattern: /GemmOutline|outlineOf/, instead: "description" },
  { pattern: /(Warpgroup|Row|Launch|Batch|Direct|Wide)Form\b/, instead: "config" },
  { pattern: /linear(Many|Each)/, instead: "batched linear, fused projections" },
  { pattern: /\b(most|least|fewest)(?!Likely)[A-Z]/, instead: "max, min" },
  { pattern: /[sS]tepParts?\b/, instead: "phase" },
  { pattern: /BegunCall|BegunColumns|beginColumns/, instead: "partial" },
  { pattern: /launchedMemory/, instead: "dynamic shared memory" },
  { pattern: /isFlipped|flippedStride/, instead: "swap AB" },
  { pattern: /isByRegisters|isByWarps|by-registers|by-warps/, instead: "RS mainloop" },
  { pattern: /markStream|endMark/, instead: "event" },
  { pattern: /WorkPiece|sendPieces|senderOf/, instead: "command" },
  { pattern: /RecipeWriter|followRecipe|recipesOf/, instead: "lowering cache" },
  { pattern: /nothingTouched|(take|requireSame|count)Findings/, instead: "checksum" },
  { pattern: /copyAlike/, instead: "batch copies" },
  { pattern: /gemm(Many|Together)|ProductsTogether|(run|launch|cast|reduce)Together/, instead: "grouped" },
  { pattern: /keepFastest/, instead: "autotune" },
  { pattern: /productOverRows|sumOverRows|asMultiplied/, instead: "weight gradient" },
  { pattern: /trouble\.jsonl|[tT]roubles?[A-Z]/, instead: "incidents", except: ["src/train/run-files.ts"] },
];

interface Source {
  readonly path: string;
  readonly text: string;
}

/** One line for each use of a retired word: `src/a.ts:3 "word": use … instead`. */
function retiredWordsIn(sources: readonly Source[]): string[] {
  return sources.flatMap(({ path, text }) => {
    const words = retired.filter(({ except = [] }) => !except.some((start) => path.startsWith(start)));
    return text.split("\n").flatMap((line, index) =>
      words.flatMap(({ pattern, instead }) => {
        const word = pattern.exec(line)?.[0];
        return word === undefined ? [] : [`${path}:${index + 1} "${word}": use ${instead} instead`];
      }),
    );
  });
}

const sources = [".ts", ".tsx"]
  .flatMap((extension) => filesBelow("src", extension))
  .map((path) => ({ path, text: readRepositoryFile(path) }));

test("the sources have no retired words", () => {
  assert.ok(sources.length > 400);
  assert.deepEqual(retiredWordsIn(sources), []);
});

test("a retired word is found in an identifier, in a comment and in a text", () => {
  const injected = [
    { path: "src/a.ts", text: "const first = 1;\nfunction makeHandover() {}\n" },
    { path: "src/b.ts", text: "// The museum of faults.\n" },
    { path: "src/c.ts", text: 'throw new Error("The verifier refuses the plan.");\n' },
    { path: "src/d.ts", text: "const fine = accumulators;\n" },
  ];
  assert.deepEqual(retiredWordsIn(injected), [
    'src/a.ts:2 "Handover": use PDL instead',
    'src/b.ts:1 "museum": use regressions instead',
    'src/c.ts:1 "refuse": use reject instead',
  ]);
});

test("every exception is needed", () => {
  const unneeded = retired.flatMap(({ pattern, except = [] }) =>
    except
      .filter((start) => !sources.some(({ path, text }) => path.startsWith(start) && pattern.test(text)))
      .map((start) => `${pattern} in ${start}`),
  );
  assert.deepEqual(unneeded, []);
});

test("every retired word has its replacement in the glossary", () => {
  const glossary = readRepositoryFile("docs/internals/glossary.md");
  const [, table = ""] = glossary.split("## Retired words");
  const missing = retired.filter(({ instead }) => !table.toLowerCase().includes(instead.toLowerCase()));
  assert.deepEqual(
    missing.map(({ instead }) => instead),
    [],
  );
});
