/** Retired words do not return: sources, tests and benchmarks use the words of docs/internals/glossary.md. */

import assert from "node:assert/strict";
import test from "node:test";
import { filesBelow, readRepositoryFile } from "./support/repository.js";

/** A retired word or identifier. The check searches identifiers, comments and texts. */
interface Retired {
  /** Matches anywhere in a line, so it needs word boundaries for short words. */
  readonly pattern: RegExp;
  readonly instead: string;
  /** Path prefixes of files in which the word has another meaning. */
  readonly except?: readonly string[];
}

/** Add a word here as soon as no file has it, and its replacement to the glossary's last table. */
const retired: readonly Retired[] = [
  { pattern: /handover/i, instead: "PDL" },
  { pattern: /isEarly\b|isEarlyB|canBeginEarly|[bB]eginEarly|goodBefore|withBeginning/, instead: "PDL" },
  { pattern: /awaitPrevious|(step|way)InTurn/, instead: "grid dependency wait" },
  { pattern: /\bstand-?ins?\b|[sS]tandIn/, instead: "emulator" },
  { pattern: /museum/i, instead: "regressions" },
  { pattern: /imagination|[a-z]Imagin|imagined[A-Z]/, instead: "trace" },
  { pattern: /overhear/i, instead: "intercept" },
  { pattern: /BesideCall|runBeside|[rR]owsBeside/, instead: "combo kernel" },
  { pattern: /FinishedCall|gemmFinish|finishProduct/, instead: "epilogue" },
  { pattern: /keepsResult|storingFor/, instead: "stored accumulators" },
  { pattern: /outputReadBack|valueLoadedBack/, instead: "forwarded output" },
  { pattern: /[mM]a(k|d)eApart/, instead: "hoist outputs" },
  {
    pattern: /turnWeights|TurnedMatrix|prefersTurned|turnsRight|is(Left|Right)?Turned/,
    instead: "transpose",
  },
  { pattern: /refus(e|al|ing)/i, instead: "reject", except: ["src/train/inspection/", "src/serve/"] },
  { pattern: /bringBox|boxInstructions|withBoxes/, instead: "TMA load" },
  { pattern: /(await|set|pass|publish)Gates?\b/, instead: "mbarrier" },
  { pattern: /MatrixMap|matrix-maps|NamedMap|requireMaps/, instead: "tensor map" },
  { pattern: /beginCopy|endCopies|awaitCopies|copy-instructions/, instead: "cp.async" },
  { pattern: /(begin|end|await)Products|publishStores/, instead: "wgmma" },
  { pattern: /meetThreads|(give|take)Registers|describeTile/, instead: "named barrier" },
  { pattern: /placingFor|beginningFor/, instead: "tile scheduler" },
  { pattern: /LentArrays|lent-arrays/, instead: "temporary gradients" },
  { pattern: /cohort/i, instead: "step count group" },
  { pattern: /FreeSpace/, instead: "TLSF allocator" },
  { pattern: /GrowingRange|growing-range/, instead: "virtual range" },
  { pattern: /CaptureGate|capture-gate/, instead: "capture state" },
  { pattern: /enclosure|[uU]nenclosed|isEnclosed|keeperOf/i, instead: "sub-arena" },
  { pattern: /GemmOutline|outlineOf/, instead: "description" },
  { pattern: /(Warpgroup|Row|Launch|Batch|Direct|Wide)Form\b|[a-z]FormOf\b/, instead: "config" },
  { pattern: /linear(Many|Each)|seenAsOne/, instead: "batched linear, fused projections" },
  { pattern: /\b(most|least|fewest)(?!Likely)[A-Z]/, instead: "max, min" },
  { pattern: /[sS]tepParts?\b|enterPart\b/, instead: "phase" },
  { pattern: /BegunCall|BegunColumns|beginColumns/, instead: "partial" },
  { pattern: /partsOf(Few|Some|Many)|columnParts|heldParts/, instead: "partial" },
  { pattern: /ColumnJoin|join(Halves|Lanes|Warps)\b/, instead: "combine" },
  {
    pattern: /column-steps|StepLayout|hasTwoSteps|sumWithRows|summed(Rows|Outputs)/,
    instead: "split reduction",
  },
  { pattern: /PartsKernel|launchParts|countParts|reduce-parts/, instead: "chunked reduction" },
  { pattern: /openParts/, instead: "components" },
  { pattern: /launchedMemory/, instead: "dynamic shared memory" },
  { pattern: /isFlipped|flippedStride/, instead: "swap AB" },
  { pattern: /isAlong\b/, instead: "K-major" },
  { pattern: /splitTile\b/, instead: "split-K" },
  { pattern: /isPaired|pairingOf/, instead: "cluster" },
  { pattern: /isByRegisters|isByWarps|by-registers|by-warps|multiplyHeld/, instead: "RS mainloop" },
  { pattern: /wideProductsOf|gemm\/wide/, instead: "DMMA" },
  { pattern: /markStream|endMark|[:<] ?Mark\b/, instead: "event" },
  { pattern: /WorkPiece|sendPieces|senderOf/, instead: "command" },
  { pattern: /recipe/i, instead: "lowering cache" },
  {
    pattern: /nothingTouched|[:<] ?(Touched|Findings)\b|(take|requireSame|count)Findings/,
    instead: "checksum",
  },
  { pattern: /copyAlike|copyMany|copy-many|turn-many/, instead: "batch copies" },
  { pattern: /gemm(Many|Together)|ProductsTogether|(run|launch|cast|reduce)Together/, instead: "grouped" },
  { pattern: /functions-together|LaunchTogether|(rows|columns)Together/i, instead: "grouped" },
  { pattern: /keepFastest|faster-of|(gemm|time)Choices|chooseProducts|product-times/, instead: "autotune" },
  { pattern: /gemmIsOwn|firstOwnChoice/, instead: "native kernel" },
  { pattern: /isOddBatch/, instead: "unaligned batch" },
  { pattern: /productOverRows|sumOverRows|asMultiplied/, instead: "weight gradient" },
  { pattern: /narrowResults|narrowedIn|narrow-product/, instead: "bf16 activations" },
  { pattern: /roomIn\b|hasRoom\b|requireRoom|RoomFor\b/, instead: "available bytes" },
  { pattern: /forgottenBehind|isForgotten/, instead: "dead on exit" },
  { pattern: /common-calls|shareCommonCalls/, instead: "CSE" },
  { pattern: /readAtSource|makeInPlace|gatherCopies/, instead: "copy propagation" },
  { pattern: /spread-results|makeSpread|SpreadCopy/, instead: "strided outputs" },
  { pattern: /region-casts/, instead: "coalesced casts" },
  { pattern: /rounded-?[aA]ttention/, instead: "attention cast" },
  { pattern: /wouldGrow/, instead: "critical path" },
  { pattern: /fixedPartsOf|standAlongRows/, instead: "loop-invariant" },
  { pattern: /\bstepsOf\b|pitchOf/, instead: "strided access" },
  { pattern: /woven/, instead: "interleaved" },
  { pattern: /goAside/, instead: "side stream" },
  { pattern: /guardWrites|countSkips/, instead: "skip on non-finite" },
  { pattern: /Judgement|[:<] ?Shortage\b/, instead: "diagnose out of memory" },
  { pattern: /[:<] ?Board\b|new Board\b/, instead: "shared status" },
  { pattern: /axis-walk/, instead: "scan, scatter" },
  { pattern: /gradientRuns/, instead: "span" },
  { pattern: /trouble\.jsonl|[tT]roubles?[A-Z]/, instead: "incidents", except: ["src/train/run-files.ts"] },
];

interface Source {
  readonly path: string;
  readonly text: string;
}

/** One line for each use of a retired word: `src/a.ts:3 "word": use … instead`. */
function retiredWordsIn(sources: readonly Source[]): string[] {
  return sources.flatMap(({ path, text }) => {
    // Whole files first, because nearly all of them have no match.
    const words = retired.filter(
      ({ pattern, except = [] }) => pattern.test(text) && !except.some((start) => path.startsWith(start)),
    );
    if (words.length === 0) return [];
    return text.split("\n").flatMap((line, index) =>
      words.flatMap(({ pattern, instead }) => {
        const word = pattern.exec(line)?.[0];
        return word === undefined ? [] : [`${path}:${index + 1} "${word}": use ${instead} instead`];
      }),
    );
  });
}

const sourcesOf = (...folders: readonly string[]): readonly Source[] =>
  folders
    .flatMap((folder) =>
      [".ts", ".tsx", ".mjs", ".cpp", ".h"].flatMap((ending) => filesBelow(folder, ending)),
    )
    .filter((path) => path !== "test/glossary.test.ts")
    .map((path) => ({ path, text: readRepositoryFile(path) }));

const sources = sourcesOf("src");
const tests = sourcesOf("test", "bench", "scripts");

test("the sources have no retired words", () => {
  assert.ok(sources.length > 400);
  assert.deepEqual(retiredWordsIn(sources), []);
});

test("the tests, the emulator and the benchmarks have no retired words", () => {
  assert.ok(tests.length > 300);
  assert.deepEqual(retiredWordsIn(tests), []);
});

test("a retired word is found in an identifier, in a comment and in a text", () => {
  const injected = [
    { path: "src/a.ts", text: "const first = 1;\nfunction makeHandover() {}\n" },
    { path: "src/b.ts", text: "// The museum of faults.\n" },
    { path: "src/c.ts", text: 'throw new Error("The verifier refuses the plan.");\n' },
    { path: "test/d.test.ts", text: "const steps = joinHalves(partials);\n" },
    { path: "test/emulator/e.cpp", text: "void awaitGate(int phase);\n" },
    { path: "src/f.ts", text: "const fine = accumulators;\n" },
  ];
  assert.deepEqual(retiredWordsIn(injected), [
    'src/a.ts:2 "Handover": use PDL instead',
    'src/b.ts:1 "museum": use regressions instead',
    'src/c.ts:1 "refuse": use reject instead',
    'test/d.test.ts:1 "joinHalves": use combine instead',
    'test/emulator/e.cpp:1 "awaitGate": use mbarrier instead',
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
