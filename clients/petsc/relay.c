/* Solves whose callbacks run on the thread of the caller. Krylith calls them from another thread, and the
 * caller may hold a lock that they need, as petsc4py holds that of Python. So the solve moves to a thread
 * of its own. */
#include "krylith_petsc.h"
#include <pthread.h>

enum { IDLE, ASKED, ANSWERED, DONE };

struct KrylithRelay_ {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int state;
  /* What a thread of Krylith asks the caller to do. */
  int32_t (*work)(void *);
  void *data;
  int32_t answer;
  /* The solve, its status and the text of its error. */
  KrylithFollower *follower;
  PetscBool transposed;
  const PetscScalar *b;
  PetscScalar *x;
  const krylith_memory *at;
  krylith_status status;
  char words[2048];
};

static krylith_status solve(KrylithFollower *f, PetscBool transposed, const PetscScalar *b, PetscScalar *x,
                            const krylith_memory *at) {
  return transposed ? krylith_solver_solve_transposed(f->solver, b, x, at, &f->solution)
                    : krylith_solver_solve(f->solver, b, x, at, &f->solution);
}

static void *run(void *given) {
  KrylithRelay relay = (KrylithRelay)given;

  relay->status = solve(relay->follower, relay->transposed, relay->b, relay->x, relay->at);
  if (relay->status != KRYLITH_OK) /* each thread has its own text */
    (void)snprintf(relay->words, sizeof(relay->words), "%s", krylith_last_error());
  pthread_mutex_lock(&relay->lock);
  relay->state = DONE;
  pthread_cond_broadcast(&relay->changed);
  pthread_mutex_unlock(&relay->lock);
  return NULL;
}

/* Lets the caller of the solve do something while a thread of Krylith waits. */
int32_t KrylithRelayCall(KrylithRelay relay, int32_t (*work)(void *), void *data) {
  int32_t answer;

  pthread_mutex_lock(&relay->lock);
  relay->work = work;
  relay->data = data;
  relay->state = ASKED;
  pthread_cond_broadcast(&relay->changed);
  while (relay->state != ANSWERED)
    pthread_cond_wait(&relay->changed, &relay->lock);
  relay->state = IDLE;
  answer = relay->answer;
  pthread_mutex_unlock(&relay->lock);
  return answer;
}

/* Solves A x = b, or Aᵀ x = b, with arrays on the host if `at` is null; with callbacks, these run on this
 * thread. */
krylith_status KrylithSolve(KrylithFollower *f, PetscBool callbacks, PetscBool transposed,
                            const PetscScalar *b, PetscScalar *x, const krylith_memory *at) {
  struct KrylithRelay_ relay = {
      .state = IDLE, .follower = f, .transposed = transposed, .b = b, .x = x, .at = at};
  pthread_t thread;

  if (!callbacks)
    return solve(f, transposed, b, x, at);
  pthread_mutex_init(&relay.lock, NULL);
  pthread_cond_init(&relay.changed, NULL);
  f->relay = &relay;
  if (pthread_create(&thread, NULL, run, &relay)) {
    f->relay = NULL;
    return krylith_reject("no thread can be started for a solve with monitors; raise the limit of threads");
  }
  pthread_mutex_lock(&relay.lock);
  for (;;) {
    while (relay.state != ASKED && relay.state != DONE)
      pthread_cond_wait(&relay.changed, &relay.lock);
    if (relay.state == DONE)
      break;
    pthread_mutex_unlock(&relay.lock);
    relay.answer = relay.work(relay.data);
    pthread_mutex_lock(&relay.lock);
    relay.state = ANSWERED;
    pthread_cond_broadcast(&relay.changed);
  }
  pthread_mutex_unlock(&relay.lock);
  pthread_join(thread, NULL);
  f->relay = NULL;
  pthread_cond_destroy(&relay.changed);
  pthread_mutex_destroy(&relay.lock);
  if (relay.status != KRYLITH_OK)
    (void)krylith_reject(relay.words); /* for krylith_last_error of this thread */
  return relay.status;
}
