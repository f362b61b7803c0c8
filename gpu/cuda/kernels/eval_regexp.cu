// Regular expressions. Package gpu/regex makes the tables and describes the search. A thread searches one string.
#include "eval_text.cuh"

// Choice is a step that may be taken at a position where its conditions hold. Its slots are set to the position.
struct Choice {
    u16 step, where;
    u32 slots;
};

// Regex has the layout of regex.Automaton.
struct Regex {
    const u16* ascii;
    const u32* bounds;
    const u16* ranges;
    const u32* reads;
    const u16* next; // null: the sets of steps are computed
    const u8* starts;
    const u32* live;
    const u32* first;
    const Choice* follow;
    i32 bound_count, classes, words, begin, where;
    i32 unused;
};
static_assert(sizeof(Regex) == 96 && sizeof(Choice) == 8);

constexpr i32 SLOTS = 20, MAX_WORDS = 32;
constexpr u8 DEAD = 1 << 7;

// The kinds of code points next to a position, and the conditions that depend on them.
enum Kind : i32 { NO_RUNE, NEWLINE, WORD, OTHER };
enum Where : u32 { BEGIN_LINE = 1, END_LINE = 2, BEGIN_TEXT = 4, END_TEXT = 8, WORD_BOUNDARY = 16, NO_WORD_BOUNDARY = 32 };

DEVICE i32 kind_of(u8 c) {
    if (c == '\n') return NEWLINE;
    bool letter = ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
    return letter || (c >= '0' && c <= '9') ? WORD : OTHER;
}

DEVICE i32 kind_before(Text s, i64 p) { return p == 0 ? NO_RUNE : kind_of(s.p[p - 1]); }

DEVICE u32 where(const Regex& r, Text s, i64 p) {
    if (!r.where) return 0;
    i32 before = kind_before(s, p), after = p == s.n ? NO_RUNE : kind_of(s.p[p]);
    u32 w = 0;
    if (before == NO_RUNE) w |= BEGIN_TEXT | BEGIN_LINE;
    if (before == NEWLINE) w |= BEGIN_LINE;
    if (after == NO_RUNE) w |= END_TEXT | END_LINE;
    if (after == NEWLINE) w |= END_LINE;
    return w | ((before == WORD) != (after == WORD) ? WORD_BOUNDARY : NO_WORD_BOUNDARY);
}

// class_before returns the class of the code point that ends at p > 0.
DEVICE u32 class_before(const Regex& r, Text s, i64 p, i32& size) {
    u8 c = s.p[p - 1];
    size = 1;
    if (c < 0x80) return r.ascii[c];
    Rune x = decode_last(s.p, p);
    size = x.size;
    i32 lo = 0, hi = r.bound_count - 1;
    while (lo < hi) {
        i32 mid = (lo + hi) / 2;
        if (x.code < r.bounds[mid]) hi = mid;
        else lo = mid + 1;
    }
    return r.ranges[lo];
}

DEVICE bool has(const u32* set, u32 step) { return set[step / 32] >> (step % 32) & 1; }

// choose returns the first choice after a step whose step is in a set, or -1.
DEVICE i64 choose(const Regex& r, i32 step, const u32* set, u32 where) {
    for (u32 i = r.first[step]; i < r.first[step + 1]; i++) {
        Choice c = r.follow[i];
        if (has(set, c.step) && !(c.where & ~where)) return i;
    }
    return -1;
}

// back computes the set before the code point that ends at p from the set after it. It returns the bytes of the code
// point.
DEVICE i32 back(const Regex& r, Text s, i64 p, const u32* live, u32* before) {
    i32 size;
    const u32* reads = r.reads + (i64)class_before(r, s, p, size) * r.words;
    u32 holds = where(r, s, p);
    for (i32 w = 0; w < r.words; w++) {
        u32 word = w == 0;
        for (u32 steps = reads[w]; steps; steps &= steps - 1) {
            i32 step = 32 * w + __ffs(steps) - 1;
            if (choose(r, step, live, holds) >= 0) word |= 1u << (step % 32);
        }
        before[w] = word;
    }
    return size;
}

DEVICE bool matches(const Regex& r, Text s) {
    if (!r.next) {
        u32 sets[2][MAX_WORDS];
        for (i32 w = 0; w < r.words; w++) sets[0][w] = w == 0;
        i64 p = s.n;
        for (i32 k = 0;; k ^= 1) {
            if (choose(r, r.begin, sets[k], where(r, s, p)) >= 0) return true;
            if (p == 0) return false;
            p -= back(r, s, p, sets[k], sets[k ^ 1]);
        }
    }
    u32 state = 0;
    for (i64 p = s.n;;) {
        if (u8 starts = r.starts[state]) {
            if (starts >> kind_before(s, p) & 1) return true;
            if (starts & DEAD) return false;
        }
        if (p == 0) return false;
        i32 size;
        u32 c = class_before(r, s, p, size);
        p -= size;
        state = r.next[state * r.classes + c];
    }
}

KERNEL(eval_regexp, Args) {
    i64 i = global_thread();
    bool found = i < a.n && bit(a.valid, i) && matches(*(const Regex*)a.set, load_text(a.x, i));
    store_bits((u32*)a.out, a.n, i, found);
}

// Search contains the state, or the set, at each position of a string.
struct Search {
    const Regex& r;
    Text s;
    u16* states;
    u32* sets;
    i64 slots[SLOTS];

    // The memory of row i follows that of the rows before it. Each row has as many positions as bytes, and one more.
    __device__ Search(const Args& a, i64 i) : r(*(const Regex*)a.set), s(load_text(a.x, i)) {
        i64 at = ((const i64*)a.list)[i] + i;
        states = (u16*)a.table + at;
        sets = (u32*)a.table + at * r.words;
    }

    __device__ void read() {
        i32 size;
        if (!r.next) {
            u32* live = sets + s.n * r.words;
            for (i32 w = 0; w < r.words; w++) live[w] = w == 0;
            for (i64 p = s.n; p > 0;) {
                class_before(r, s, p, size);
                u32* before = sets + (p - size) * r.words;
                back(r, s, p, live, before);
                live = before;
                p -= size;
            }
            return;
        }
        u32 state = 0;
        for (i64 p = s.n;;) {
            states[p] = (u16)state;
            if (p == 0) return;
            u32 c = class_before(r, s, p, size);
            p -= size;
            state = r.next[state * r.classes + c];
        }
    }

    __device__ const u32* live(i64 p) const { return r.next ? r.live + (i64)states[p] * r.words : sets + p * r.words; }

    __device__ bool begins(i64 p) const {
        if (!r.next) return choose(r, r.begin, live(p), where(r, s, p)) >= 0;
        u8 starts = r.starts[states[p]];
        return starts && (starts >> kind_before(s, p) & 1);
    }

    __device__ i64 size(i64 p) const { return s.p[p] < 0x80 ? 1 : decode(s.p + p, s.n - p).size; }

    // find sets the slots of the first match that begins at p or after it.
    __device__ bool find(i64 p) {
        for (; !begins(p); p += size(p))
            if (p == s.n) return false;
        for (i32 k = 0; k < SLOTS; k++) slots[k] = -1;
        slots[0] = p;
        for (i32 step = r.begin;;) {
            Choice c = r.follow[choose(r, step, live(p), where(r, s, p))];
            for (i32 k = 2; k < SLOTS; k++)
                if (c.slots >> k & 1) slots[k] = p;
            if (c.step == 0) break;
            step = c.step;
            p += size(p);
        }
        slots[1] = p;
        return true;
    }

    __device__ Text group(i64 k) const {
        if (2 * k + 1 >= SLOTS || slots[2 * k] < 0 || slots[2 * k + 1] < 0) return Text{s.p, 0};
        return Text{s.p + slots[2 * k], slots[2 * k + 1] - slots[2 * k]};
    }
};

// eval_regexp_extract returns group p of the first match.
KERNEL(eval_regexp_extract, Args) {
    i64 i = global_thread();
    if (i >= a.n) return;
    Text out{nullptr, 0};
    if (bit(a.valid, i)) {
        Search search(a, i);
        search.read();
        if (search.find(0)) out = search.group(a.p);
    }
    ((Text*)a.out)[i] = out;
}

// eval_regexp_replace replaces the first match by y, or all matches if p is 1: see regex.Search.Replace. The second run
// reuses the states that the first run has stored.
KERNEL(eval_regexp_replace, Args) {
    make_text(a, [&](i64 i, Writer& w) {
        Search search(a, i);
        if (!w.p) search.read();
        Text s = search.s, replacement = load_text(a.y, i);
        i64 p = 0, last = -1;
        while (search.find(p)) {
            i64 begin = search.slots[0], end = search.slots[1];
            w.put(s.p + p, begin - p);
            p = begin;
            if (begin == last && end == begin) { // an empty match directly after another match does not count
                if (begin == s.n) return;
                i64 size = search.size(begin);
                w.put(s.p + begin, size);
                p += size;
                continue;
            }
            for (i64 k = 0; k < replacement.n; k++) {
                u8 c = replacement.p[k];
                if (c == '\\' && k + 1 < replacement.n) {
                    c = replacement.p[++k];
                    if (c >= '0' && c <= '9') {
                        w.put(search.group(c - '0'));
                        continue;
                    }
                }
                w.put(c);
            }
            p = last = end;
            if (!a.p) break;
        }
        w.put(s.p + p, s.n - p);
    });
}
