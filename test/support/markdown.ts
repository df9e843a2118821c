/** Reads what the documentation tests need from Markdown: headings, fenced TypeScript, relative links. */

/** A fenced block of TypeScript. */
export interface CodeBlock {
  /** The nearest heading above the block; "" for none. */
  readonly heading: string;
  /** The number of the block's first line of code, from 1. */
  readonly line: number;
  readonly code: string;
  /** From a `<!-- not run: reason -->` on the last line of text above the block. */
  readonly notRun: string | undefined;
}

interface Line {
  readonly text: string;
  /** From 1. */
  readonly number: number;
}

/** The blocks fenced as ts, in order. */
export function codeBlocks(markdown: string): CodeBlock[] {
  const blocks: CodeBlock[] = [];
  let heading = "";
  let previous = "";
  for (const section of sections(markdown)) {
    if (section.kind === "fence") {
      if (section.language === "ts") {
        const notRun = /^<!-- not run: (.+?) -->$/.exec(previous)?.[1];
        blocks.push({ heading, line: section.line, code: section.code, notRun });
      }
      previous = "";
    } else if (section.text.trim() !== "") {
      heading = /^#+\s+(.*)$/.exec(section.text)?.[1] ?? heading;
      previous = section.text.trim();
    }
  }
  return blocks;
}

/** The relative targets of the links and images, without their #anchors. */
export function relativeLinks(markdown: string): string[] {
  const targets: string[] = [];
  for (const section of sections(markdown)) {
    if (section.kind === "fence") continue;
    const prose = section.text.replace(/`[^`]*`/g, "");
    for (const match of prose.matchAll(/\]\(<?([^\s)>]+)|^\[[^\]]+\]:\s*(\S+)/g)) {
      const target = (match[1] ?? match[2] ?? "").replace(/#.*$/, "");
      const isElsewhere = /^[a-z][a-z0-9+.-]*:/i.test(target);
      if (target !== "" && !isElsewhere) targets.push(target);
    }
  }
  return targets;
}

/** The links with an #anchor, to this page (path "") or to another one. */
export function anchorLinks(markdown: string): { readonly path: string; readonly anchor: string }[] {
  return proseLines(markdown).flatMap((line) =>
    Array.from(
      line.replace(/`[^`]*`/g, "").matchAll(/\]\((?!\w+:)([^\s)#]*)#([^\s)]+)\)/g),
      ([, path = "", anchor = ""]) => ({ path, anchor }),
    ),
  );
}

/** The anchors of the headings, as GitHub makes them. */
export function headingAnchors(markdown: string): string[] {
  const counts = new Map<string, number>();
  return proseLines(markdown).flatMap((line) => {
    const text = /^#+\s+(.*?)\s*$/.exec(line)?.[1];
    if (text === undefined) return [];
    const anchor = text
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-");
    const count = counts.get(anchor) ?? 0;
    counts.set(anchor, count + 1);
    return [count === 0 ? anchor : `${anchor}-${count}`];
  });
}

/** The lines outside of fences. */
export function proseLines(markdown: string): string[] {
  return Array.from(sections(markdown)).flatMap((section) => (section.kind === "text" ? [section.text] : []));
}

type Section =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "fence"; readonly language: string; readonly line: number; readonly code: string };

/** Splits into lines of text and whole fences, so that code is never taken for text. */
function* sections(markdown: string): Generator<Section> {
  const lines = markdown
    .split("\n")
    .map((text, index): Line => ({ text, number: index + 1 }))
    .values();
  for (const { text, number } of lines) {
    const opening = /^(\s*)(`{3,}|~{3,})\s*([\w-]*)/.exec(text);
    if (opening === null) {
      yield { kind: "text", text };
      continue;
    }
    const [, margin = "", fence = "", language = ""] = opening;
    const code: string[] = [];
    for (const inner of lines) {
      if (inner.text.trim() === fence) break;
      code.push(inner.text.startsWith(margin) ? inner.text.slice(margin.length) : inner.text);
    }
    yield { kind: "fence", language, line: number + 1, code: code.join("\n") };
  }
}
