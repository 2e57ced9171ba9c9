/*-------------------------------------------------------------------------
 *
 * serve_als.c
 *	  Training for a session, or finding the neighbors of items: one request
 *	  after another, as the session reads its rows.
 *
 * ADD is answered before it is done, and a session may leave the answers
 * unread, and drop an error among them.  So an error stays with the job, and
 * the next requests get it.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/als/training.h"
#include "engine/fault.h"
#include "engine/neighbors/neighbors.h"
#include "engine/serve/session.h"

struct gpuvec_job
{
	gpuvec_job *next;			/* guarded by the mutex */
	gpuvec_als_state state;		/* changed with the mutex */
	gpuvec_training *training;	/* this one, ... */
	gpuvec_neighbors *neighbors;	/* ... or this one; the other is NULL */
	uint32_t	factors;
	bool		failed;			/* by `error` */
	gpuvec_error error;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static gpuvec_job *jobs = NULL; /* of all sessions */

static void
list_job(gpuvec_job *job)
{
	pthread_mutex_lock(&mutex);
	job->next = jobs;
	jobs = job;
	pthread_mutex_unlock(&mutex);
}

static void
unlist_job(gpuvec_job *job)
{
	gpuvec_job **link = &jobs;

	pthread_mutex_lock(&mutex);
	while (*link != job)
		link = &(*link)->next;
	*link = job->next;
	pthread_mutex_unlock(&mutex);
}

void
gpuvec_session_end_job(gpuvec_session *s)
{
	gpuvec_job *job = s->job;

	if (job == NULL)
		return;
	s->job = NULL;
	unlist_job(job);
	if (job->training)
		gpuvec_training_free(job->training);
	if (job->neighbors)
		gpuvec_neighbors_free(job->neighbors);
	free(job);
}

/* Number of users or items of a job, from PREPARE on */
static uint32_t
job_rows(const gpuvec_job *job, gpuvec_als_side side)
{
	return job->neighbors ? gpuvec_neighbors_rows(job->neighbors, side) :
		gpuvec_training_rows(job->training, side);
}

static uint64_t
job_entries(const gpuvec_job *job)
{
	return job->neighbors ? gpuvec_neighbors_entries(job->neighbors) :
		gpuvec_training_entries(job->training);
}

/* Set the job's phase; from PREPARE on its sizes are known */
static void
set_phase(gpuvec_job *job, gpuvec_als_phase phase)
{
	pthread_mutex_lock(&mutex);
	job->state.phase = phase;
	job->state.users = job_rows(job, GPUVEC_ALS_USERS);
	job->state.items = job_rows(job, GPUVEC_ALS_ITEMS);
	job->state.entries = job_entries(job);
	if (job->neighbors)
		job->state.iterations = (uint32_t) job->state.items;
	pthread_mutex_unlock(&mutex);
}

/* Answer with the job's state */
static bool
answer_state(gpuvec_session *s, const gpuvec_request *request, int64_t started)
{
	gpuvec_als_state *state = &s->job->state;

	pthread_mutex_lock(&mutex);
	state->seconds = (double) (gpuvec_clock_us() - started) / 1e6;
	pthread_mutex_unlock(&mutex);
	return gpuvec_answer(s, request, GPUVEC_MSG_ALS_STATE, state, sizeof(*state));
}

/* Keep the job's first error: this and all later requests fail */
static void
fail_job(gpuvec_job *job, const gpuvec_error *error)
{
	if (!job->failed)
		job->error = *error;
	job->failed = true;
}

/* Answer with the job's error, or with *error if it is the first one */
static bool
answer_failure(gpuvec_session *s, const gpuvec_request *request, const gpuvec_error *error)
{
	fail_job(s->job, error);
	return gpuvec_answer_error(s, request, &s->job->error);
}

/* What is wrong with the options, or NULL */
static const char *
wrong_options(const gpuvec_als_begin *begin)
{
	if (begin->factors < 1 || begin->factors > GPUVEC_ALS_MAX_FACTORS)
		return "ALS_BEGIN has a wrong number of factors.";
	if (begin->cg_steps < 1 || begin->cg_steps > GPUVEC_ALS_MAX_STEPS || begin->fold_in > 1)
		return "ALS_BEGIN has wrong options.";
	if (!isfinite(begin->regularization) || begin->regularization < 0 ||
		!(begin->alpha >= GPUVEC_ALS_MIN_ALPHA) || !isfinite(begin->alpha))
		return "ALS_BEGIN has wrong numbers.";
	return NULL;
}

/* Give the session a job, and list it */
static void
take_job(gpuvec_session *s, gpuvec_job *job, uint32_t role, uint32_t relation)
{
	job->state.pid = s->hello.pid;
	job->state.database = s->hello.database;
	job->state.role = role;
	job->state.relation = relation;
	job->state.loss = NAN;
	list_job(job);
	s->job = job;
}

/* Make the session's job */
static bool
make_job(gpuvec_session *s, const gpuvec_als_begin *begin, gpuvec_error *error)
{
	gpuvec_training_options options = {
		.factors = begin->factors, .cg_steps = begin->cg_steps, .seed = begin->seed,
		.regularization = begin->regularization, .alpha = begin->alpha, .fold_in = begin->fold_in
	};
	gpuvec_job *job = calloc(1, sizeof(*job));

	if (job == NULL)
		return gpuvec_fail_memory(error, sizeof(*job));
	job->training = gpuvec_training_new(&s->server->store, s->server->options->cpu_threads, &options,
										error);
	if (job->training == NULL)
	{
		free(job);
		return false;
	}
	job->factors = begin->factors;
	job->state.iterations = begin->iterations;
	job->state.fold_in = begin->fold_in;
	take_job(s, job, begin->role, begin->relation);
	return true;
}

bool
gpuvec_serve_als_begin(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_als_begin begin;
	gpuvec_error error;
	const char *wrong;

	if (request->length != sizeof(begin))
		return gpuvec_answer_violation(s, request, "ALS_BEGIN has the wrong length.");
	memcpy(&begin, request->data, sizeof(begin));
	wrong = wrong_options(&begin);
	if (wrong)
		return gpuvec_answer_violation(s, request, wrong);
	gpuvec_session_end_job(s);
	if (!make_job(s, &begin, &error))
		return gpuvec_answer_error(s, request, &error);
	return answer_state(s, request, started);
}

/*
 * True if the session's job can take a request in a phase from `from` to
 * `to`.  If not, it is answered, and *result is what the handler returns.
 */
static bool
in_phase(gpuvec_session *s, const gpuvec_request *request, gpuvec_als_phase from,
		 gpuvec_als_phase to, bool *result)
{
	if (s->job == NULL || (!s->job->failed && (s->job->state.phase < (uint32_t) from ||
											   s->job->state.phase > (uint32_t) to)))
		*result = gpuvec_answer_violation(s, request, "A request of a training is out of place.");
	else if (s->job->failed)
		*result = answer_failure(s, request, NULL);
	else
		return true;
	return false;
}

/*
 * Parse a chunk of n elements, of which each has `keys` keys and `floats`
 * floats.  False if its length is wrong.
 */
static bool
parse_chunk(const gpuvec_request *request, gpuvec_als_chunk *chunk, uint32_t keys, uint32_t floats)
{
	uint64_t	size;

	if (request->length < sizeof(*chunk))
		return false;
	memcpy(chunk, request->data, sizeof(*chunk));
	if (chunk->n > GPUVEC_MAX_FRAME)
		return false;
	size = sizeof(*chunk) + chunk->n * keys * sizeof(int64_t) +
		(chunk->n * floats * sizeof(float) + 7) / 8 * 8;
	return request->length == size && chunk->side <= GPUVEC_ALS_ITEMS;
}

/* True if n floats are finite, and none is zero if `nonzero` */
static bool
good_floats(const float *floats, uint64_t n, bool nonzero)
{
	bool		good = true;

	for (uint64_t i = 0; i < n; i++)
		good &= isfinite(floats[i]) && (!nonzero || floats[i] != 0);
	return good;
}

/* Add n interactions: users, then items, then weights */
static bool
add_interactions(gpuvec_job *job, uint64_t n, const int64_t *users, gpuvec_error *error)
{
	const int64_t *items = users + n;
	const float *weights = (const float *) (items + n);

	return job->neighbors ? gpuvec_neighbors_add(job->neighbors, n, users, items, weights, error) :
		gpuvec_training_add(job->training, n, users, items, weights, error);
}

/*
 * The answer comes first, so that the session sends the next chunk while this
 * one is worked on.  If that fails, the next request is answered with it.
 */
bool
gpuvec_serve_als_add(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_als_chunk chunk;
	gpuvec_error error;
	const int64_t *users = (const int64_t *) (request->data + sizeof(chunk));
	bool		result;

	if (!in_phase(s, request, GPUVEC_ALS_READING, GPUVEC_ALS_READING, &result))
		return result;
	if (!parse_chunk(request, &chunk, 2, 1) ||
		!good_floats((const float *) (users + 2 * chunk.n), chunk.n, true))
		return gpuvec_answer_violation(s, request, "ALS_ADD is wrong.");
	pthread_mutex_lock(&mutex);
	s->job->state.added += chunk.n;
	pthread_mutex_unlock(&mutex);
	if (!answer_state(s, request, started))
		return false;
	if (!add_interactions(s->job, chunk.n, users, &error))
		fail_job(s->job, &error);
	return true;
}

static bool
prepare_job(gpuvec_job *job, const int *canceled, gpuvec_error *error)
{
	return job->neighbors ? gpuvec_neighbors_prepare(job->neighbors, canceled, error) :
		gpuvec_training_prepare(job->training, canceled, error);
}

bool
gpuvec_serve_als_prepare(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	int			canceled = 0;
	gpuvec_error error;
	bool		result;

	if (!in_phase(s, request, GPUVEC_ALS_READING, GPUVEC_ALS_READING, &result))
		return result;
	set_phase(s->job, GPUVEC_ALS_PREPARING);
	gpuvec_hangup_watch(s->fd, &canceled);
	gpuvec_fault_sleep("slow-preparing", &canceled);
	result = prepare_job(s->job, &canceled, &error);
	gpuvec_hangup_unwatch(s->fd);
	if (__atomic_load_n(&canceled, __ATOMIC_RELAXED) && (result || !error.fatal))
		return gpuvec_answer_canceled(s, request);
	if (!result)
		return answer_failure(s, request, &error);
	set_phase(s->job, s->job->neighbors ? GPUVEC_ALS_NEIGHBORS : GPUVEC_ALS_TRAINING);
	return answer_state(s, request, started);
}

bool
gpuvec_serve_als_set(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_als_phase phase = s->job && s->job->state.fold_in ? GPUVEC_ALS_READING : GPUVEC_ALS_TRAINING;
	const int64_t *keys = (const int64_t *) (request->data + sizeof(gpuvec_als_chunk));
	gpuvec_als_chunk chunk;
	gpuvec_error error;
	bool		result;

	if (!in_phase(s, request, phase, phase, &result))
		return result;
	if (!parse_chunk(request, &chunk, 1, s->job->factors) ||
		(s->job->state.fold_in && chunk.side != GPUVEC_ALS_ITEMS) ||
		!good_floats((const float *) (keys + chunk.n), chunk.n * s->job->factors, false))
		return gpuvec_answer_violation(s, request, "ALS_SET is wrong.");
	if (!gpuvec_training_set(s->job->training, (gpuvec_als_side) chunk.side, chunk.n, keys,
							 (const float *) (keys + chunk.n), &error))
		return answer_failure(s, request, &error);
	return answer_state(s, request, started);
}

/* Do an iteration, or fold in; *loss is NaN then */
static bool
run_job(gpuvec_job *job, const int *canceled, double *loss, gpuvec_error *error)
{
	if (!job->state.fold_in)
		return gpuvec_training_iterate(job->training, canceled, loss, error);
	*loss = NAN;
	return gpuvec_training_fold_in(job->training, canceled, error);
}

bool
gpuvec_serve_als_run(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	int			canceled = 0;
	gpuvec_error error;
	double		loss;
	bool		result;

	if (!in_phase(s, request, GPUVEC_ALS_TRAINING, GPUVEC_ALS_TRAINING, &result))
		return result;
	gpuvec_hangup_watch(s->fd, &canceled);
	gpuvec_fault_crash("crash-on-training");
	gpuvec_fault_sleep("slow-training", &canceled);
	result = run_job(s->job, &canceled, &loss, &error);
	gpuvec_hangup_unwatch(s->fd);
	if (__atomic_load_n(&canceled, __ATOMIC_RELAXED) && (result || !error.fatal))
		return gpuvec_answer_canceled(s, request);
	if (!result)
		return answer_failure(s, request, &error);
	pthread_mutex_lock(&mutex);
	s->job->state.iteration++;
	s->job->state.loss = loss;
	pthread_mutex_unlock(&mutex);
	return answer_state(s, request, started);
}

/* Answer with the keys and factors of a chunk */
static bool
answer_factors(gpuvec_session *s, const gpuvec_request *request, const gpuvec_als_chunk *chunk)
{
	gpuvec_training *training = s->job->training;
	size_t		bytes = chunk->n * s->job->factors * sizeof(float);
	float	   *elements = malloc(bytes + 1);
	struct iovec pieces[2];
	gpuvec_error error;
	bool		ok;

	if (elements == NULL)
	{
		gpuvec_fail_memory(&error, bytes);
		return answer_failure(s, request, &error);
	}
	if (!gpuvec_training_copy(training, (gpuvec_als_side) chunk->side, chunk->first,
							  (uint32_t) chunk->n, elements, &error))
	{
		free(elements);
		return answer_failure(s, request, &error);
	}
	pieces[0].iov_base = (void *) (gpuvec_training_keys(training, (gpuvec_als_side) chunk->side) +
								   chunk->first);
	pieces[0].iov_len = chunk->n * sizeof(int64_t);
	pieces[1].iov_base = elements;
	pieces[1].iov_len = bytes;
	ok = gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_ALS_FACTORS, pieces, 2);
	free(elements);
	return ok;
}

bool
gpuvec_serve_als_get(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_als_chunk chunk;
	uint32_t	rows;
	bool		result;

	if (!in_phase(s, request, GPUVEC_ALS_TRAINING, GPUVEC_ALS_WRITING, &result))
		return result;
	if (request->length != sizeof(chunk))
		return gpuvec_answer_violation(s, request, "ALS_GET has the wrong length.");
	memcpy(&chunk, request->data, sizeof(chunk));
	if (chunk.side > GPUVEC_ALS_ITEMS)
		return gpuvec_answer_violation(s, request, "ALS_GET has a wrong side.");
	rows = gpuvec_training_rows(s->job->training, (gpuvec_als_side) chunk.side);
	if (chunk.first > rows || chunk.n > rows - chunk.first)
		return gpuvec_answer_violation(s, request, "ALS_GET asks for rows that there are not.");
	/* no session asks for that much, which is not charged */
	if (chunk.n * (sizeof(int64_t) + s->job->factors * sizeof(float)) > GPUVEC_MAX_FRAME)
		return gpuvec_answer_violation(s, request, "ALS_GET asks for too many rows.");
	set_phase(s->job, GPUVEC_ALS_WRITING);
	return answer_factors(s, request, &chunk);
}

bool
gpuvec_serve_als_end(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_als_state state = {0};

	if (s->job)
		state = s->job->state;
	gpuvec_session_end_job(s);
	return gpuvec_answer(s, request, GPUVEC_MSG_ALS_STATE, &state, sizeof(state));
}

bool
gpuvec_serve_als_list(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_als_state *states;
	gpuvec_error error;
	size_t		n = 0;
	bool		ok;

	pthread_mutex_lock(&mutex);
	for (const gpuvec_job *job = jobs; job; job = job->next)
		n++;
	states = malloc(n * sizeof(*states) + 1);
	n = 0;
	for (const gpuvec_job *job = jobs; states && job; job = job->next)
		states[n++] = job->state;
	pthread_mutex_unlock(&mutex);
	if (states == NULL)
	{
		gpuvec_fail_memory(&error, 0);
		return gpuvec_answer_error(s, request, &error);
	}
	ok = gpuvec_answer(s, request, GPUVEC_MSG_ALS_STATES, states, n * sizeof(*states));
	free(states);
	return ok;
}

/* ---- neighbors ---- */

/* What is wrong with the options, or NULL */
static const char *
wrong_neighbors(const gpuvec_neighbors_begin *begin)
{
	if (begin->k < 1 || begin->k > GPUVEC_MAX_K)
		return "NEIGHBORS_BEGIN has a wrong k.";
	if (begin->weighting >= GPUVEC_N_WEIGHTINGS)
		return "NEIGHBORS_BEGIN has an unknown weighting.";
	if (!(begin->k1 >= 0 && begin->k1 <= GPUVEC_MAX_BM25_K1) || !(begin->b >= 0 && begin->b <= 1))
		return "NEIGHBORS_BEGIN has wrong numbers.";
	return NULL;
}

/* Make the session's job: to find neighbors */
static bool
make_neighbors(gpuvec_session *s, const gpuvec_neighbors_begin *begin, gpuvec_error *error)
{
	gpuvec_neighbors_options options = {
		.k = begin->k, .weighting = (gpuvec_weighting) begin->weighting, .k1 = begin->k1, .b = begin->b
	};
	gpuvec_job *job = calloc(1, sizeof(*job));

	if (job == NULL)
		return gpuvec_fail_memory(error, sizeof(*job));
	job->neighbors = gpuvec_neighbors_new(&s->server->store, s->server->options->cpu_threads,
										  &options, error);
	if (job->neighbors == NULL)
	{
		free(job);
		return false;
	}
	take_job(s, job, begin->role, begin->relation);
	return true;
}

bool
gpuvec_serve_neighbors_begin(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	gpuvec_neighbors_begin begin;
	gpuvec_error error;
	const char *wrong;

	if (request->length != sizeof(begin))
		return gpuvec_answer_violation(s, request, "NEIGHBORS_BEGIN has the wrong length.");
	memcpy(&begin, request->data, sizeof(begin));
	wrong = wrong_neighbors(&begin);
	if (wrong)
		return gpuvec_answer_violation(s, request, wrong);
	gpuvec_session_end_job(s);
	if (!make_neighbors(s, &begin, &error))
		return gpuvec_answer_error(s, request, &error);
	return answer_state(s, request, started);
}

/* Answer with the job's state and n rows */
static bool
answer_neighbors(gpuvec_session *s, const gpuvec_request *request, int64_t started,
				 const gpuvec_neighbor *rows, uint64_t n)
{
	gpuvec_als_state *state = &s->job->state;
	struct iovec pieces[2] = {
		{state, sizeof(*state)}, {(void *) rows, n * sizeof(*rows)}
	};

	pthread_mutex_lock(&mutex);
	state->iteration = gpuvec_neighbors_done(s->job->neighbors);
	state->seconds = (double) (gpuvec_clock_us() - started) / 1e6;
	pthread_mutex_unlock(&mutex);
	return gpuvec_send_frame(s->fd, request->number, GPUVEC_MSG_NEIGHBORS_FOUND, pieces, 2);
}

bool
gpuvec_serve_neighbors(gpuvec_session *s, const gpuvec_request *request)
{
	int64_t		started = gpuvec_clock_us();
	int			canceled = 0;
	const gpuvec_neighbor *rows;
	gpuvec_error error;
	uint64_t	n;
	bool		result;

	if (!in_phase(s, request, GPUVEC_ALS_NEIGHBORS, GPUVEC_ALS_NEIGHBORS, &result))
		return result;
	gpuvec_hangup_watch(s->fd, &canceled);
	gpuvec_fault_crash("crash-on-training");
	gpuvec_fault_sleep("slow-training", &canceled);
	result = gpuvec_neighbors_next(s->job->neighbors, &canceled, &rows, &n, &error);
	gpuvec_hangup_unwatch(s->fd);
	if (__atomic_load_n(&canceled, __ATOMIC_RELAXED) && (result || !error.fatal))
		return gpuvec_answer_canceled(s, request);
	if (!result)
		return answer_failure(s, request, &error);
	return answer_neighbors(s, request, started, rows, n);
}
