/*
 * stop.pml: the stop and the eras of docs/uniqueness.md, "The stop", for one tag whose bucket goes back.
 *
 *   "Each worker remembers, also in a data directory: the eras, its floors, the highest revision, and its own key,
 *   which it alone writes, before each load whose last check is older than 3 s."
 *
 * Bounds: N workers, LOADS loads of one ID each, CHECKS checks beyond those that begin an era or follow an incident,
 * BACKUPS backups, RESTORES set-backs of the whole bucket, CRASHES crashes with or without the data directory, LOSSES
 * writes of own keys that are lost, or only their answers. Beyond RESTORES + 1 incidents a prover stands still.
 *
 * A check is one step, and so are a load's read and its CAS. Joining an incident takes three: the incident, the need,
 * the own key. At any time an actor may stand still, and the bucket be saved or go back. There is no clock: an operator
 * resumes only once no check counts any more.
 *
 * No ID is issued twice, but for what "Outside the promise" excuses: "The marks are set back (A3)", until another
 * worker "proves the set-back", and "A worker is cut off when the marks go back". No incident is opened without a
 * set-back. `make model` removes rules, as README.md lists, and expects a repeat.
 */
#ifndef N
#define N 2
#endif
#ifndef LOADS
#define LOADS 3
#endif
#ifndef CHECKS
#define CHECKS 1
#endif
#ifndef RESTORES
#define RESTORES 1
#endif
#ifndef BACKUPS
#define BACKUPS 1
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#define IDS (2 * LOADS + 4)
#define ERAS 6

#define BIT(i) (1 << (i))
#define HAS(set, i) (((set) >> (i)) & 1)
#define MAX(x, y) (((x) > (y)) -> (x) : (y))

/* An own key: its token, its revision, the incident that its owner joined, and its need. */
typedef Own { byte token, rev, joined, need };
typedef Bucket {
	byte last;                /* revision */
	byte mark, from;                 /* and its era */
	byte idRev, era, eras, ended;    /* the identity: the present era; sets have a bit for each era, or incident */
	byte open, prior, others, need;  /* the incident, with the eras that provers know */
	Own own[N]
};
Bucket b, backup, none;

byte off[ERAS];                  /* the offset of an era, which its fresh ID has everywhere */

/* NEEDS is a STOPPING worker that knows its need, and whose own key does not name the incident yet. */
mtype = { UNKNOWN, SOUND, STOPPING, NEEDS, STOPPED };

typedef Memory {
	mtype state;
	byte era, eras, incident, ended;
	byte token, rev;          /* of the own key, as last written; 0: none */
	byte flight, above;       /* a write in doubt, and the highest revision when it was sent */
	byte highest;
	byte floor, disk, need;
	bool proof;
	byte load;                /* a range whose CAS was acknowledged, not used yet; 0: none */
	byte ids;                 /* an ID in memory; 0: none */
	byte fresh;               /* tokens so far */
	/* The rest is known to the reader alone. wrote: the own key, since the backup. undone: that write was set back.
	   sure: a check after that found nothing, so loads have no excuse. away: no check since the proof. */
	bool wrote, undone, sure, away;
	byte top;                 /* how far this worker ever loaded */
};
Memory m[N];

byte loads, checks, backups, restores, crashes, losses, incidents;
byte made = 1;  /* eras */
bool blind;     /* the bucket went back, and no operator has ended an incident since */
bool detected;  /* an incident is open since */
bool issued[IDS];

#define W m[me]
#define STANDS (W.state == STOPPING || W.state == NEEDS || W.state == STOPPED)

/* (1) "mark + max(0, offset(p) - offset(era of the entry))" */
#ifdef NO_OFFSET
#define READ(p) (b.mark)
#else
#define READ(p) (b.mark + MAX(0, off[p] - off[b.from]))
#endif

inline issue(which, excused) { assert(!issued[which] || excused); issued[which] = true }

/* Before: any state. "stopping, stopped: neither" loads nor issues. */
inline halt() {
	W.state = STOPPING; W.load = 0; W.undone = false; W.sure = false;
#ifndef NO_DISCARD
	W.ids = 0;
#endif
	if :: detected -> W.away = false :: else fi
}

inline leaveKey() { W.token = 0; W.rev = 0; W.flight = 0; W.above = 0; W.wrote = false }

/* A write of this worker was acknowledged at the revision b.last. */
inline acked() {
	if
	:: b.last <= W.highest && !STANDS ->
#ifdef NO_REVISION /* "revision not above the highest" */
		W.undone = true
#else
		W.proof = true; halt()
#endif
	:: else
	fi;
	W.highest = b.last
}

inline joinOpen() {
	if
	:: W.incident != 0 && W.incident != b.open -> W.ended = W.ended | BIT(W.incident)
	:: else
	fi;
	W.incident = b.open
}

/* "It writes the incident into the identity, with the prover's eras and need": who has not joined the open one joins
   it. */
inline prove() {
	assert(restores > 0);
	detected = true;
	halt();
	known = (BIT(W.incident) | W.ended) & ~1;
	if
	:: b.open != 0 && b.open != W.incident && !HAS(W.ended, b.open) ->
		b.prior = (b.prior | known) & ~b.ended & ~BIT(b.open)
	:: else ->
		incidents++;
#ifdef ONE_STOP
		assert(incidents <= restores);
#else
		incidents <= restores + 1; /* beyond that a prover stands still */
#endif
		b.prior = (b.prior | (BIT(b.open) & ~1) | known) & ~b.ended;
		b.open = incidents
	fi;
	b.others = (b.others | W.eras) & ~b.eras;
	b.need = MAX(b.need, W.need);
	b.last++; b.idRev = b.last; W.highest = b.last;
	joinOpen();
#ifndef PROOF_KEY
	leaveKey();
#endif
	W.proof = false; known = 0
}

/* "by how much a mark is below its floor": the entry is written as it was read. */
inline low() {
	W.need = 0; below = false;
	if
	:: READ(b.era) < W.floor -> b.last++; acked(); below = true;
#ifndef NO_NEED
		W.need = W.floor - READ(b.era)
#endif
	:: else
	fi
}

#define O b.own[me]
#define MINE (W.token != 0 && O.token == W.token && O.rev == W.rev)
#define LANDED (W.flight != 0 && O.token == W.flight && O.rev > W.above)

/* "own key not as last written, at any revision": proved. */
inline compare() {
	if
	:: W.token == 0 && W.flight == 0
	:: !(W.token == 0 && W.flight == 0) ->
		if
		:: MINE
		:: !MINE && LANDED ->
			W.undone = W.undone || O.rev <= W.above;
			W.token = W.flight; W.rev = O.rev; W.flight = 0; W.above = 0
		:: !MINE && !LANDED && W.token == 0 ->
			if :: O.token == W.flight -> leaveKey() :: else fi
		:: !MINE && !LANDED && W.token != 0 ->
			proved = true
		fi
	fi
}

inline put() { b.last++; O.token = W.flight; O.rev = b.last; O.joined = W.incident; O.need = W.need }

/* The own key is written. ok: it was acknowledged. */
inline write() {
	if :: W.flight != 0 -> compare() :: else fi;
	if
	:: proved
	:: !proved && W.token != 0 && O.rev != W.rev -> refused = true
	:: !proved && !(W.token != 0 && O.rev != W.rev) ->
		if :: W.flight == 0 -> W.fresh++; W.flight = W.fresh; W.above = W.highest :: else fi;
#ifndef ANY_HIGHEST /* "what is known above the identity may be of another history" */
		if :: W.incident != 0 && W.above > b.idRev -> W.above = b.idRev :: else fi;
#endif
		if
		:: losses < LOSSES -> losses++        /* the write is lost */
		:: losses < LOSSES -> losses++; put() /* the answer is lost */
		:: put(); ok = true;
			W.token = W.flight; W.rev = b.last; W.flight = 0; W.above = 0; W.wrote = restores < RESTORES;
			acked()
		fi
	fi;
	if :: refused -> compare(); refused = false :: else fi
}

inline found() {
	if
	:: ok && W.state == NEEDS && W.incident != 0 -> W.state = STOPPED
	:: ok && W.incident == 0 && !W.proof ->
		W.state = SOUND; W.sure = W.undone;
		W.away = blind && !detected && !W.sure
	:: else
	fi
}

inline begin() {
	W.era = b.era; W.eras = b.eras; W.need = 0; leaveKey(); W.undone = false;
	W.disk = (crashes < CRASHES -> W.floor : 0);
	writes = true
}

/* "joined: its own key names the incident, and its need" */
inline note() {
	if
	:: W.state == STOPPING ->
		low(); below = false;
		W.disk = (crashes < CRASHES -> W.floor : 0); W.state = NEEDS
	:: W.state == NEEDS ->
		writes = true
	fi
}

/* The end of a stop, and the return of a worker from an old era. */
inline resume() {
	low();
	if
	:: below -> proved = true
	:: else ->
		if :: W.incident != 0 -> W.ended = W.ended | BIT(W.incident); W.incident = 0 :: else fi;
		begins = true
	fi
}

#ifdef NO_RENEW
#define OLD false
#else
#define OLD (W.era != b.era)
#endif
#define LOST ((W.eras & ~b.eras) != 0)
#define KNOWN ((W.eras & ~(b.eras | b.others)) == 0)

inline check() {
	if
	:: W.incident != 0 ->
		if
		:: b.open == W.incident ->
			compare();
			if
			:: proved
			:: !proved && W.state == UNKNOWN -> halt()
			:: !proved && W.state != UNKNOWN -> note()
			fi
		:: b.open != W.incident && LOST && (b.open == 0 || !KNOWN) -> proved = true
		:: b.open != W.incident && b.open != 0 && !(LOST && !KNOWN) ->
			halt(); compare();
			if
			:: proved
			:: !proved -> joinOpen()
			fi
		:: b.open == 0 && !LOST && HAS(b.ended, W.incident) -> resumes = true
		:: b.open == 0 && !LOST && !HAS(b.ended, W.incident) -> proved = true
		fi
	:: W.incident == 0 ->
		if
		:: LOST -> proved = true
		:: !LOST && b.open == 0 && W.era != 0 && OLD -> W.proof = false; halt(); resumes = true
		:: !LOST && !(b.open == 0 && W.era != 0 && OLD) ->
			if
			:: W.proof -> proved = true
			:: !W.proof && b.open != 0 ->
				halt(); compare();
				if
				:: proved
				:: else ->
					joinOpen()
				fi
			:: !W.proof && b.open == 0 && W.era == 0 -> begins = true
			:: !W.proof && b.open == 0 && W.era != 0 -> checks++; writes = true
			fi
		fi
	fi;
	if :: resumes -> resume() :: else fi;
	if :: begins -> begin() :: else fi;
	if :: writes -> write(); found() :: else fi;
	if :: proved -> prove() :: else fi;
	ok = false; proved = false; below = false; resumes = false; begins = false; writes = false
}

proctype Worker(byte me) {
	byte known;
	bool below, ok, proved, refused, resumes, begins, writes;
end:	do
	:: atomic { (W.state != SOUND && W.state != STOPPED && (W.incident != 0 ||
		W.era == 0 || OLD || W.proof || b.open != 0 || checks < CHECKS)) ||
		(W.state == STOPPED && (b.open != W.incident || !MINE)) -> check() }
	/* 3 s later */
	:: atomic { W.state == SOUND -> W.state = UNKNOWN; W.load = 0 }
	:: atomic { W.state == SOUND && W.load == 0 && W.ids == 0 && loads < LOADS ->
		if
		:: !HAS(W.eras, b.from) -> W.state = UNKNOWN /* it checks */
		:: HAS(W.eras, b.from) && READ(W.era) < W.floor ->
			W.need = W.floor - READ(W.era); b.last++; acked();
			W.proof = true; halt()
		:: else ->
			loads++;
			W.load = READ(W.era);
			b.mark = W.load + 1; b.from = W.era; b.last++; /* (2) */
			W.top = b.mark;
			acked()
		fi }
	:: atomic { W.load != 0 ->
		W.floor = W.load + 1;
		if
		:: issue(W.load, blind && !W.sure)
		:: W.ids = W.load
		fi;
		W.load = 0 }
	:: atomic { W.ids != 0 && !STANDS -> issue(W.ids, W.away || (blind && !W.sure)); W.ids = 0 }
	:: atomic { crashes < CRASHES -> crashes++;
		W.load = 0; W.ids = 0; W.state = UNKNOWN; W.proof = false; W.need = 0; W.away = false; W.sure = false;
		if
		:: W.floor = W.disk; W.highest = W.rev
		:: W.floor = 0; W.disk = 0; W.highest = 0; W.era = 0; W.eras = 0; W.incident = 0; W.ended = 0; leaveKey(); W.undone = false
		fi }
	od
}

inline copyBucket(x, y) {
	x.last = y.last; x.mark = y.mark; x.from = y.from; x.idRev = y.idRev; x.era = y.era; x.eras = y.eras;
	x.ended = y.ended; x.open = y.open; x.prior = y.prior; x.others = y.others; x.need = y.need;
	for (i : 0 .. N - 1) {
		x.own[i].token = y.own[i].token; x.own[i].rev = y.own[i].rev; x.own[i].joined = y.own[i].joined;
		x.own[i].need = y.own[i].need
	}
	i = 0
}

proctype Disks() {
	byte i;
end:	do
	:: atomic { backups < BACKUPS -> backups++; copyBucket(backup, b);
		for (i : 0 .. N - 1) { m[i].wrote = false }
		i = 0 }
	:: atomic { backups > 0 && restores < RESTORES && b.last > backup.last -> restores++; copyBucket(b, backup);
		if :: restores == RESTORES -> copyBucket(backup, none) :: else fi;
		blind = true; detected = (b.open != 0);
		for (i : 0 .. N - 1) {
			m[i].undone = m[i].wrote; m[i].wrote = m[i].wrote && restores < RESTORES;
			m[i].away = true; m[i].sure = false
		}
		i = 0 }
	od
}

/* "Assumption: since the state found, no tag was loaded further than the bump, beyond what the workers that joined
   know." So a top counts only for a worker that has not joined, or that crashed and lost its floor. */
inline reach() {
	highest = 0; need = b.need; by = 0;
	for (i : 1 .. ERAS - 1) {
		if :: HAS(b.eras | b.others, i) -> highest = MAX(highest, off[i]) :: else fi
	}
	for (i : 0 .. N - 1) {
		if
		:: b.own[i].joined == incident -> need = MAX(need, b.own[i].need)
		:: else
		fi
	}
	for (i : 0 .. N - 1) {
		if
		:: b.own[i].joined == incident && m[i].floor >= m[i].top
		:: else -> by = MAX(by, m[i].top - need - b.mark - MAX(0, highest - off[b.from]))
		fi
	}
#ifdef SHORT
	by = by - 1;
#endif
	i = 0
}

#define NOBODY_SOUND (m[0].state != SOUND && m[1].state != SOUND && m[N - 1].state != SOUND)

mtype = { LOOK, WAIT, RESUME };

/* (3) "one CAS of the identity: a fresh era, offset = the highest that identity and provers know + bump + highest
   need" */
proctype Operator() {
	mtype next = LOOK;
	byte incident, rev, highest, need, i;
	short by;
end:	do
	:: atomic { next == LOOK && b.open != 0 -> incident = b.open; next = WAIT }
#ifdef NO_WAIT
	:: atomic { next == WAIT -> rev = b.idRev; next = RESUME }
#else
	:: atomic { next == WAIT && NOBODY_SOUND -> rev = b.idRev; next = RESUME }
#endif
	:: atomic { next == RESUME && b.open == incident && b.idRev == rev && made < ERAS - 1 ->
		reach();
		made++; off[made] = highest + by + need;
		b.eras = b.eras | b.others | BIT(made); b.era = made;
		b.ended = b.ended | b.prior | BIT(b.open); b.open = 0; b.prior = 0; b.others = 0; b.need = 0;
		b.last++; b.idRev = b.last; blind = false;
		next = LOOK; incident = 0; rev = 0; highest = 0; need = 0; by = 0 }
	:: atomic { next != LOOK && (b.open != incident || (next != WAIT && b.idRev != rev)) ->
		next = LOOK; incident = 0; rev = 0 }
	od
}

init {
	atomic {
		byte w;
		b.mark = 1; b.from = 1; b.era = 1; b.eras = BIT(1); b.last = 1; b.idRev = 1;
		for (w : 0 .. N - 1) { m[w].state = UNKNOWN; run Worker(w) }
		run Disks();
		run Operator()
	}
}
