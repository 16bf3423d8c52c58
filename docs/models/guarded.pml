/*
 * guarded.pml: the second law of docs/uniqueness.md, "With a guarded table", for one
 * tag: ranges are in Leaf's table, and a mark in JetStream guards it.
 *
 *   "Step 2 alone keeps natsid's workers apart, whatever the table lost. Step 3
 *   keeps them apart from Leaf nodes, which know only the table, while it does not
 *   go back."
 *
 * Bounds: N natsid workers, LEAVES Leaf nodes, LOADS loads in all of one or two IDs
 * each, CRASHES crashes.
 *
 * At any time a worker may stand still; a write of the mark or an UPDATE may be lost
 * or only its answer, and an UPDATE may be carried out late; a process may die with
 * its memory; a poll may raise the mark to the row and lift the row to the mark.
 * Late writes of the mark are in segments.pml. `make model` removes each rule and
 * each assumption once, as README.md lists, and expects a repeat.
 */
#ifndef N
#define N 2
#endif
#ifndef LEAVES
#define LEAVES 0
#endif
#ifndef LOADS
#define LOADS 4
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define IDS (2 * LOADS + 3)

byte mark = 1, rev;       /* in JetStream */
byte row = 1;             /* max_id in leaf_alloc */
byte loads, crashes;
bool issued[IDS];

/* UPDATEs whose connection was lost: carried out later, or never. */
byte lateA[N], lateB[N];  /* b = 0: none */

#define MAX(x, y) (((x) > (y)) -> (x) : (y))

#ifdef ANY_ROW
#define ABOVE true
#else
#define ABOVE (row <= a)  /* "WHERE biz_tag = ? AND max_id <= a" */
#endif

inline issue() {
	do
	:: a < b -> assert(!issued[a]); issued[a] = true; a++
	:: else -> break
	od;
	a = 0; b = 0
}

mtype = { IDLE, READ, RESERVED, DOUBT, LOADED };

proctype Worker(byte me) {
	mtype mode = IDLE;
	byte m, r;      /* the mark and its revision, as they were read */
	byte a, b;      /* the range */
	byte floor;
	byte n;
end:	do
	/* (1) "read mark at revision r, then the row" */
	:: atomic { mode == IDLE && loads < LOADS -> loads++; m = mark; r = rev; mode = READ }
	:: atomic { mode == READ ->
		if :: n = 1 :: n = 2 fi;
		a = MAX(MAX(row, m), floor);          /* "a = max(max_id, mark, floor)" */
		b = a + n; n = 0;
		if
		:: r == rev ->                        /* (2) "write mark b by CAS on r" */
			rev++; mark = b;
			if
			:: mode = RESERVED
			:: mode = IDLE; a = 0; b = 0  /* "ambiguous: the range is discarded" */
			fi
		:: else -> mode = IDLE; a = 0; b = 0  /* "refused: back to (1)" */
		fi;
		m = 0; r = 0 }
	/* (3) "UPDATE leaf_alloc SET max_id = b WHERE biz_tag = ? AND max_id <= a" */
	:: atomic { mode == RESERVED ->
		if
		:: ABOVE -> row = b;
			if
			:: mode = LOADED              /* "one row: use [a, b)" */
			:: mode = DOUBT
			fi
		:: !(ABOVE) -> mode = IDLE; a = 0; b = 0 /* "no row: back to (1)" */
		:: lateB[me] == 0 -> lateA[me] = a; lateB[me] = b; mode = DOUBT
		:: true                               /* certainly refused: the range is kept */
		fi }
	:: atomic { mode == LOADED -> floor = MAX(floor, b); issue(); mode = IDLE }
	/* "After an ambiguous UPDATE it is kept only while the row is still below its start" */
	:: atomic { mode == DOUBT ->
#ifdef USE_AMBIGUOUS
		mode = LOADED
#else
		if
#ifdef ROW_PROVES
		:: row == b -> mode = LOADED
#endif
		:: row <= a -> mode = RESERVED
		:: else -> mode = IDLE; a = 0; b = 0
		fi
#endif
	   }
	:: atomic { lateB[me] != 0 ->
		if
#ifdef ANY_ROW
		:: row = lateB[me]
#else
		:: row <= lateA[me] -> row = lateB[me]
#endif
		:: true
		fi;
		lateA[me] = 0; lateB[me] = 0 }
	/* "Every poll raises marks to the rows, and lifts rows below their mark." */
	:: atomic { mode == IDLE && mark < row -> mark = row; rev++ }
	:: atomic { mode == IDLE && row < mark -> row = mark }
	:: atomic { mode != IDLE && crashes < CRASHES -> crashes++; mode = IDLE; floor = 0; a = 0; b = 0; m = 0; r = 0 }
	od
}

/* A Leaf node raises max_id by its step, and knows of no mark. */
proctype Leaf() {
	byte a, b;
end:	do
	:: atomic { loads < LOADS -> loads++; a = row;
		if :: b = a + 1 :: b = a + 2 fi;
		row = b };
	   atomic { issue() }
	od
}

/* Stores that go back to what they had at some time. */
proctype Operator() {
	byte oldRow, oldMark, oldRev;
#ifdef TABLE_BACK
	atomic { oldRow = row };
#endif
#ifdef MARK_BACK
	atomic { oldMark = mark; oldRev = rev };
#endif
#ifdef TABLE_BACK
	atomic { row = oldRow };
#endif
#ifdef MARK_BACK
	atomic { mark = oldMark; rev = oldRev };
#endif
	skip
}

init {
	atomic {
		byte w;
		for (w : 0 .. N - 1) { run Worker(w) }
#if LEAVES
		for (w : 1 .. LEAVES) { run Leaf() }
#endif
		run Operator()
	}
}
