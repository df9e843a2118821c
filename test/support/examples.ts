/** The documentation's examples: their locations in Markdown and in TSDoc, and their claimed output. */

import { codeBlocks } from "./markdown.js";
import { ts } from "./typescript.js";

export interface Example {
  /** File and heading or symbol, for readers. */
  readonly name: string;
  readonly code: string;
  /** Why it is checked but not run; undefined for an example that runs. */
  readonly notRun: string | undefined;
}

export function markdownExamples(file: string, text: string): Example[] {
  return codeBlocks(text).map(({ heading, line, code, notRun }) => ({
    name: `${file}:${line}${heading === "" ? "" : ` ${heading}`}`,
    code,
    notRun,
  }));
}

/** The start of an example in a TSDoc comment. */
const fence = "* ```ts";

/** The fenced blocks of the TSDoc comments in a source file, named after the described symbols. */
export function sourceExamples(file: string, text: string): Example[] {
  // Parsing all sources for a few examples would take seconds.
  if (!text.includes(fence)) return [];
  const source = ts.createSourceFile(file, text, {
    languageVersion: ts.ScriptTarget.ESNext,
    jsDocParsingMode: ts.JSDocParsingMode.ParseNone,
  });
  const seen = new Set<number>();
  const examples: Example[] = [];
  const visit = (node: ts.Node, owner: string): void => {
    const next = text.indexOf(fence, node.pos);
    if (next === -1 || next >= node.end) return;
    const name = [owner, nameOf(node, source)].filter((word) => word !== "").join(".");
    for (const comment of ts.getLeadingCommentRanges(text, node.pos) ?? []) {
      // A comment leads its node and that node's first children too; it describes the outermost.
      if (seen.has(comment.pos)) continue;
      seen.add(comment.pos);
      const firstLine = source.getLineAndCharacterOfPosition(comment.pos).line;
      for (const { line, code, notRun } of codeBlocks(commentText(text.slice(comment.pos, comment.end)))) {
        examples.push({ name: `${file}:${firstLine + line}${name === "" ? "" : ` ${name}`}`, code, notRun });
      }
    }
    ts.forEachChild(node, (child) => visit(child, name));
  };
  ts.forEachChild(source, (statement) => visit(statement, ""));
  return examples;
}

/** The output that the code claims: the texts after `// → `, in order. */
export function promisedLines(code: string): string[] {
  return code.split("\n").flatMap((line) => /\/\/ → (.*)$/.exec(line)?.[1] ?? []);
}

function nameOf(node: ts.Node, source: ts.SourceFile): string {
  if (ts.isVariableStatement(node)) {
    return node.declarationList.declarations
      .map((declaration) => declaration.name.getText(source))
      .join(", ");
  }
  const hasName =
    ts.isFunctionDeclaration(node) ||
    ts.isClassDeclaration(node) ||
    ts.isInterfaceDeclaration(node) ||
    ts.isTypeAliasDeclaration(node) ||
    ts.isClassElement(node) ||
    ts.isTypeElement(node);
  return hasName ? (node.name?.getText(source) ?? "") : "";
}

/** A comment's text without its stars, still one line for each line of the file. */
function commentText(comment: string): string {
  return comment.replace(/^\/\*\*|\*\/$/g, "").replace(/^[ \t]*\* ?/gm, "");
}
