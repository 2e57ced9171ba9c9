#!/usr/bin/python3
"""Draws random slips from the sources, for scripts/mutate.sh.

    mutate.py map LOG COVERAGE SOURCES MAP   which lines each job of "make check COVERAGE=yes" runs
    mutate.py draw N SEED FOLDER [FILE...]   writes slips as FOLDER/NUMBER.patch, with a head like those
                                             of test/mutations: What, Suite, Tests

SOURCES has what COVERAGE was counted of: the objects' .gcno files are there.  MAP is made or added to:
for each job that passed, and each function, the lines that the job runs, counted from the function's.

Slips come from the syntax tree of libclang (python3-clang), so most of them compile.  What does not, what
the compiler warns of, and what it makes the same code of, is drawn again.
"""

import difflib
import glob
import gzip
import json
import multiprocessing
import os
import random
import re
import shlex
import subprocess
import sys
from collections import namedtuple

Slip = namedtuple("Slip", "kind start end text function first")

# ---- which jobs run a line ----


def job_of(folder):
    """The suite and the test whose job counted its lines in a folder of this name."""
    name = re.sub(r"^(regress-preload-\w+|isolation-specs)-", lambda m: m[1].split("-")[0] + "-", folder)
    return name.replace("-", "/", 1)


def passed_jobs(log):
    """Names of jobs that passed, by the lines of make check."""
    jobs = set()
    for line in open(log):
        match = re.match(r"== (\S+): [1-9]\d* passed, 0 failed", line)
        if match and "OUT OF TIME" not in line:
            jobs.add(job_of(match[1].replace("/", "-")))
    return jobs


def ranges(numbers):
    """Numbers as text: 1-3,7"""
    out = []
    for number in sorted(numbers):
        if out and out[-1][1] == number - 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in out)


def numbers_of(text):
    """What ranges made text of."""
    numbers = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def gcov(folder, sources):
    """Runs gcov for all counts below a folder: yields what it says of each file."""
    counts = glob.glob(folder + "/**/*.gcda", recursive=True)
    for name in counts:
        notes = os.path.abspath(os.path.join(sources, os.path.relpath(name, folder))[:-5] + ".gcno")
        link = name[:-5] + ".gcno"
        if os.path.exists(notes) and not os.path.exists(link):
            os.symlink(notes, link)
    for begin in range(0, len(counts), 100):
        output = subprocess.run(["gcov", "-j", "-t"] + counts[begin:begin + 100], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        for line in output.splitlines():
            yield from json.loads(line)["files"]


def as_ranges(lines):
    """{file: {function: numbers}} with ranges for numbers."""
    return {file: {name: ranges(numbers) for name, numbers in functions.items()} for file, functions in lines.items()}


def lines_of_job(work):
    """The lines that a job runs, as {file: {function: ranges}}, and all lines of code that it knows."""
    folder, sources = work
    run, known = {}, {}
    for file in gcov(folder, sources):
        name = os.path.normpath(re.sub(r"^.*/tmp_check/src/", "", file["file"]))
        if not name.startswith("src/"):
            continue
        starts = {f["name"]: f["start_line"] for f in file["functions"]}
        for line in file["lines"]:
            function = line.get("function_name")
            if function in starts:
                number = line["line_number"] - starts[function]
                known.setdefault(name, {}).setdefault(function, set()).add(number)
                if line["count"]:
                    run.setdefault(name, {}).setdefault(function, set()).add(number)
    return as_ranges(run), as_ranges(known)


def read_map(name):
    """The map, or an empty one."""
    if not os.path.exists(name):
        return {"known": {}, "jobs": {}}
    with gzip.open(name, "rt") as file:
        return json.load(file)


def make_map(log, coverage, sources, name):
    """Adds the jobs of a run of make check to the map."""
    jobs = read_map(name)
    known = {f: {g: numbers_of(text) for g, text in functions.items()} for f, functions in jobs["known"].items()}
    passed = passed_jobs(log)
    folders = [f for f in sorted(os.listdir(coverage)) if job_of(f) in passed]
    with multiprocessing.Pool(int(os.environ.get("JOBS", "2"))) as pool:
        work = [(os.path.join(coverage, folder), sources) for folder in folders]
        for folder, (run, lines) in zip(folders, pool.imap(lines_of_job, work)):
            jobs["jobs"][job_of(folder)] = run
            for file, functions in lines.items():
                for function, text in functions.items():
                    known.setdefault(file, {}).setdefault(function, set()).update(numbers_of(text))
    jobs["known"] = as_ranges(known)
    with gzip.open(name, "wt") as file:
        json.dump(jobs, file, separators=(",", ":"))
    print(f"{len(jobs['jobs'])} jobs, {os.path.getsize(name)} bytes: {name}")


def jobs_that_run(jobs, file, function, lines):
    """
    The jobs that run one of these lines of a function, or the function if they are no lines of code.  Of a function
    that the compiler has put into its callers the map knows nothing: the jobs that run anything of the file.
    """
    inlined = function not in jobs["known"].get(file, {})
    lines = lines & numbers_of(jobs["known"].get(file, {}).get(function, ""))
    found = []
    for job, run in jobs["jobs"].items():
        ran = run.get(file, {})
        if inlined and ran or function in ran and (not lines or lines & numbers_of(ran[function])):
            found.append(job)
    return found


# of kernels, which no map knows: what tests their emulation
EMULATED = {
    "kernels/search/": "search_filter search_overlaps search_shards search_cold search_weights search search_small search_server",
    "kernels/embedding/": "embedding_kernels embedding_vectors embedding_server",
    "kernels/als/": "als_kernels",
    "kernels/neighbors/": "neighbors_kernel",
    "kernels/device/": "search_filter neighbors_kernel embedding_kernels als_kernels embedding_vectors",
}


def emulated_jobs(file):
    """The jobs that test a kernel."""
    return ["unit/" + name for folder, names in EMULATED.items() if file.startswith(folder) for name in names.split()]


def seconds_of_jobs():
    """test/seconds"""
    with open("test/seconds") as file:
        return {words[0]: int(words[1]) for words in map(str.split, file) if words and words[0] != "#"}


def cheapest(found, budget):
    """Jobs with the least seconds, as many as fit into the budget; one at least."""
    seconds = seconds_of_jobs()
    chosen = []
    for job in sorted(found, key=lambda job: (seconds.get(job, 10), job)):
        budget -= seconds.get(job, 10) + 1
        if budget < 0 and chosen:
            break
        chosen.append(job)
    return chosen


# ---- slips that a file offers ----

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"}
FUNCTIONS = ("FUNCTION_DECL", "FUNCTION_TEMPLATE", "CXX_METHOD", "CONSTRUCTOR")
SCOPES = ("NAMESPACE", "STRUCT_DECL", "CLASS_DECL", "CLASS_TEMPLATE")
STATEMENTS = ("CALL_EXPR", "BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR", "UNARY_OPERATOR", "BREAK_STMT", "CONTINUE_STMT")
RESETS = re.compile(rb"=\s*(0|NULL|false|InvalidOid|\{0\})$|^(memset|\w*(reset|clear|free|release|drop|forget|close)\w*)\s*\(")
SKIPPED = re.compile(rb"GPUVEC_INJECTION|Assert|errmsg|errhint|elog|gpuvec_log|gpuvec_fault")


class Offers:
    """All slips of one file."""

    def __init__(self, path, arguments):
        from clang import cindex
        self.cindex = cindex
        self.path = path
        self.source = open(path, "rb").read()
        self.slips = []
        unit = cindex.Index.create().parse(path, args=arguments, options=1)
        self.macros = [self.span(c) for c in unit.cursor.get_children()
                       if c.kind.name == "MACRO_INSTANTIATION" and self.here(c)]
        self.enter(unit.cursor)

    def enter(self, cursor):
        """All functions, of C++ also those in namespaces and structs."""
        for child in filter(self.here, cursor.get_children()):
            if child.kind.name in FUNCTIONS and child.is_definition():
                self.function = child
                self.walk(child, None)
            elif child.kind.name in SCOPES:
                self.enter(child)

    def here(self, cursor):
        return cursor.location.file is not None and cursor.location.file.name == self.path

    def span(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def text(self, cursor):
        start, end = self.span(cursor)
        return self.source[start:end]

    def inside_macro(self, start, end):
        """Is that a part of a macro's call?  A whole one is none."""
        return any(a <= start and end <= b and (a, b) != (start, end) for a, b in self.macros)

    def offer(self, kind, start, end, text):
        old = self.source[start:end]
        if self.inside_macro(start, end) or SKIPPED.search(old) or old == text:
            return
        text += b"\n" * (old.count(b"\n") - text.count(b"\n"))
        self.slips.append(Slip(kind, start, end, text, self.function.spelling, self.function.location.line))

    def what(self, slip):
        """What the slip is.  If the function offers the same in several places: in which line, and where in it."""
        old = self.source[slip.start:slip.end]
        what = f"`{one_line(old)}` -> `{one_line(slip.text)}`"
        places = sorted({s.start for s in self.slips if s.function == slip.function and s.text == slip.text
                         and self.source[s.start:s.end] == old})
        if len(places) == 1:
            return what
        begin = self.source.rfind(b"\n", 0, slip.start) + 1
        end = self.source.find(b"\n", slip.start)
        same_line = [at for at in places if begin <= at < end]
        what += f" in `{one_line(self.source[begin:end])}`"
        return what + (f", place {same_line.index(slip.start) + 1}" if len(same_line) > 1 else "")

    def walk(self, cursor, parent):
        handler = getattr(self, "see_" + cursor.kind.name.lower(), None)
        children = list(cursor.get_children())
        if handler:
            handler(cursor, children)
        if parent and parent.kind.name in ("COMPOUND_STMT", "IF_STMT") and cursor.kind.name in STATEMENTS:
            self.see_statement(cursor, parent)
        for child in children:
            self.walk(child, cursor)

    def see_statement(self, cursor, parent):
        """A call, an assignment or a jump may be missing."""
        if parent.kind.name == "IF_STMT" and next(parent.get_children()) == cursor:
            return
        start, end = self.span(cursor)
        old = self.source[start:end]
        if not self.source[end:].lstrip().startswith(b";") or old.startswith((b"Assert", b"ereport")):
            return
        self.offer("reset" if RESETS.search(old) else "statement", start, end, b"(void) 0")

    def see_binary_operator(self, cursor, children):
        if len(children) != 2:
            return
        (start, left), (right, end) = self.span(children[0]), self.span(children[1])
        between = self.source[left:right]
        operator = between.strip().decode(errors="replace")
        if operator in COMPARISONS:
            self.offer("comparison", left, right, between.replace(operator.encode(), COMPARISONS[operator].encode()))
        if operator in ("&&", "||"):
            self.offer("operand", start, end, self.source[start:left])
            self.offer("operand", start, end, self.source[right:end])
        if operator in ("<", "<=", ">", ">=") and self.is_integer(children[1]):
            self.offer("off by one", right, end, b"(%s) + 1" % self.source[right:end])
            self.offer("off by one", right, end, b"(%s) - 1" % self.source[right:end])
        if operator in ("+", "-"):
            self.offer("operator", left, right, between.replace(b"+", b"\0").replace(b"-", b"+").replace(b"\0", b"-"))
            if self.source[right:end] == b"1":
                self.offer("off by one", start, end, self.source[start:left])

    def is_integer(self, cursor):
        return cursor.type.get_canonical().kind.name in ("INT", "UINT", "LONG", "ULONG", "SHORT", "USHORT")

    def see_array_subscript_expr(self, cursor, children):
        if len(children) == 2 and self.is_integer(children[1]):
            start, end = self.span(children[1])
            self.offer("off by one", start, end, b"(%s) + 1" % self.source[start:end])

    def negate(self, cursor):
        start, end = self.span(cursor)
        self.offer("condition", start, end, b"!(%s)" % self.source[start:end])

    def see_if_stmt(self, cursor, children):
        self.negate(children[0])

    see_while_stmt = see_conditional_operator = see_if_stmt

    def see_call_expr(self, cursor, children):
        arguments = list(cursor.get_arguments())
        for a, b in zip(arguments, arguments[1:]):
            if a is None or b is None or a.type.get_canonical() != b.type.get_canonical():
                continue
            (start, left), (right, end) = self.span(a), self.span(b)
            if left <= right:
                self.offer("arguments", start, end, self.source[right:end] + self.source[left:right] + self.source[start:left])

    def see_integer_literal(self, cursor, children):
        start, end = self.span(cursor)
        old = self.source[start:end]
        if old in (b"true", b"false"):
            self.offer("constant", start, end, b"false" if old == b"true" else b"true")
        elif re.fullmatch(rb"[0-9]+", old):
            self.offer("off by one", start, end, b"%d" % (int(old) + 1))
            self.offer("constant", start, end, b"%d" % (int(old) * 2 if int(old) > 1 else 1 - int(old)))

    def see_decl_ref_expr(self, cursor, children):
        """A constant of an enumeration may be its neighbour."""
        target = cursor.referenced
        if target is None or target.kind.name != "ENUM_CONSTANT_DECL":
            return
        names = [c.spelling for c in target.semantic_parent.get_children()]
        for step in (-1, 1):
            at = names.index(target.spelling) + step
            if 0 <= at < len(names):
                self.offer("constant", *self.span(cursor), names[at].encode())

    def see_member_ref_expr(self, cursor, children):
        """A field may be another one of the same type, in the same struct."""
        field = cursor.referenced
        if field is None or field.kind.name != "FIELD_DECL" or not field.spelling:
            return
        start, end = self.span(cursor)
        if not self.source[:end].endswith(field.spelling.encode()):
            return
        fields = [f for f in field.semantic_parent.get_children() if f.kind.name == "FIELD_DECL"
                  and f.type.get_canonical() == field.type.get_canonical()]
        names = [f.spelling for f in fields]
        if field.spelling not in names:
            # a field of a union without a name
            return
        at = names.index(field.spelling)
        for other in fields[max(at - 1, 0):at] + fields[at + 1:at + 2]:
            self.offer("field", end - len(field.spelling), end, other.spelling.encode())


# ---- does the compiler see a difference? ----


class Compiler:
    """Compiles a file of the sources as make does, in a tree that is built."""

    def __init__(self, tree, path):
        self.tree, self.path = tree, path
        self.unit = path if path.endswith((".c", ".cu")) else self.includer(path)
        goal, settings = self.goal(os.path.splitext(self.unit)[0] + ".o")
        settings = shlex.split(os.environ.get("MUTATE_MAKE", "")) + settings
        output = subprocess.run(["make", "-n", "-W", self.unit, "-W", "./" + self.unit, goal] + settings,
                                cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        command = next(line for line in output.splitlines() if " -c " in line and self.unit in line)
        self.words = [word for word in shlex.split(command) if word not in ("-MMD", "-MP", "./" + self.unit, self.unit, "-c")]
        at = self.words.index("-o")
        del self.words[at:at + 2]

    @staticmethod
    def goal(name):
        """The object that make knows, and its makefile; of kernels that of the emulation."""
        if name.startswith("kernels/search/"):
            return "build/emulation/search/" + name, ["WITH_CUDA=auto", "-f", "test/unit/search.mk"]
        if name.startswith("kernels/"):
            return "build/emulation/" + name, ["WITH_CUDA=auto", "-f", "test/unit/embedding.mk"]
        return ("build/" if name.startswith("src/engine/") else "") + name, []

    def includer(self, path):
        """A source that includes this header, by others if need be."""
        names = sorted(glob.glob("kernels/**/*.cu*", recursive=True), key=lambda name: (name.endswith(".cuh"), name))
        users = [name for name in names if name != path and f'"{path}"' in open(name).read()]
        return users[0] if users[0].endswith(".cu") else self.includer(users[0])

    def arguments(self):
        """What libclang has to know."""
        pairs = zip([""] + self.words, self.words)
        return [word for before, word in pairs if re.match(r"-[IDx]|-std|-include|-isystem", word) or before in ("-include", "-isystem", "-x")]

    def code(self, source):
        """The object of this text; nothing if it has an error or a warning."""
        folder = os.path.join(self.tree, "build/mutate")
        os.makedirs(folder, exist_ok=True)
        copy = os.path.join("build/mutate", os.path.basename(self.path))
        unit, before = copy, os.path.dirname(self.path)
        if self.unit != self.path:
            # a header in the place of the other one
            copy, unit, before = os.path.join("build/mutate/headers", self.path), self.unit, "build/mutate/headers"
            os.makedirs(os.path.join(self.tree, os.path.dirname(copy)), exist_ok=True)
        with open(os.path.join(self.tree, copy), "wb") as file:
            file.write(source)
        made = subprocess.run(self.words + ["-g0", "-iquote", before, "-c", "-o", copy + ".o", unit],
                              cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if made.returncode or b"warning:" in made.stdout:
            return None
        with open(os.path.join(self.tree, copy + ".o"), "rb") as file:
            return file.read()


def after(source, slip):
    """The text with the slip."""
    return source[:slip.start] + slip.text + source[slip.end:]


# ---- drawing ----


def all_files(chosen):
    """C files of the library and the engine, kernels and their headers, of what was asked for, with their sizes."""
    files = []
    for name in chosen or ["src"]:
        files += glob.glob(name + "/**/*.c*", recursive=True) if os.path.isdir(name) else [name]
    files = sorted(set(f for f in files if "/nocuda/" not in f))
    return files, [os.path.getsize(f) for f in files]


def one_line(text):
    return re.sub(rb"\s+", b" ", text).strip().decode(errors="replace")


class Draw:
    """Draws slips, and writes them."""

    def __init__(self, seed, folder, chosen):
        self.dice = random.Random(seed)
        self.folder = folder
        self.tree = os.environ["MUTATE_TREE"]
        self.jobs = read_map(os.environ["MUTATE_MAP"])
        self.files, self.sizes = all_files(chosen)
        self.known, self.drawn, self.same, self.refused = {}, set(), 0, 0

    def offers(self, path):
        if path not in self.known:
            compiler = Compiler(self.tree, path)
            os.chdir(self.tree)
            offers = Offers(path, compiler.arguments())
            os.chdir(self.top)
            self.known[path] = compiler, offers, compiler.code(offers.source)
        return self.known[path]

    def one(self):
        """The next slip that makes a difference, with its file's text and all slips of the file."""
        while True:
            path = self.dice.choices(self.files, self.sizes)[0]
            compiler, offers, code = self.offers(path)
            kinds = sorted(set(s.kind for s in offers.slips))
            if not kinds:
                continue
            kind = self.dice.choice(kinds)
            slip = self.dice.choice([s for s in offers.slips if s.kind == kind])
            if (path, slip) in self.drawn:
                continue
            self.drawn.add((path, slip))
            broken = compiler.code(after(offers.source, slip))
            self.refused += broken is None
            self.same += broken == code
            if broken not in (None, code):
                return path, offers, slip

    def write(self, number, path, offers, slip):
        """A patch with its head."""
        source = offers.source
        first = source[:slip.start].count(b"\n") + 1
        lines = set(range(first, first + source[slip.start:slip.end].count(b"\n") + 1))
        found = emulated_jobs(path) or jobs_that_run(self.jobs, path, slip.function, {n - slip.first for n in lines})
        chosen = cheapest(found, int(os.environ["BUDGET"]))
        diff = difflib.unified_diff(source.decode().splitlines(True), after(source, slip).decode().splitlines(True), "a/" + path, "b/" + path)
        with open(f"{self.folder}/{number:03}.patch", "w") as file:
            file.write(f"What: {path} {slip.function}: {offers.what(slip)}\nLine: {path}:{first}\nKind: {slip.kind}\n")
            file.write(f"Suite: {' '.join(sorted(set(job.split('/')[0] for job in chosen)))}\n")
            file.write(f"Tests: {' '.join(job.split('/')[1] for job in chosen)}\nJobs: {len(chosen)} of {len(found)}\n\n")
            file.writelines(diff)

    def all(self, n):
        self.top = os.getcwd()
        for number in range(1, n + 1):
            self.write(number, *self.one())
        print(f"{n} slips drawn; beside them {self.refused} that do not compile without a warning, {self.same} that make no difference")


def main():
    if sys.argv[1] == "map":
        make_map(*sys.argv[2:])
    else:
        Draw(sys.argv[3], sys.argv[4], sys.argv[5:]).all(int(sys.argv[2]))


if __name__ == "__main__":
    main()
