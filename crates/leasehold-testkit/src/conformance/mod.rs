//! The behaviour of every engine, one function per behaviour.
//!
//! The list of all cases is [`conformance_cases!`](crate::conformance_cases) and nothing else. Each carries the ids of the rows
//! in `docs/behaviours.md` that it shows, and a test compares the two.
//!
//! A case holds under a paused clock and in real time: no upper bound is tighter than "some time", no lower bound is missing, and
//! no case depends on how fast an engine replies.

#![expect(missing_docs, reason = "the rows of `docs/behaviours.md` describe the cases")]
#![expect(clippy::missing_errors_doc, clippy::missing_panics_doc, reason = "a case fails by both")]

mod common;
mod outcome;

pub mod cancel;
pub mod contention;
pub mod fair;
pub mod fenced;
pub mod group;
pub mod latch;
pub mod lease;
pub mod leased_semaphore;
pub mod lock;
pub mod loss;
pub mod multi;
pub mod names;
pub mod non_reentrant;
pub mod owner;
pub mod reentry;
pub mod renewal;
pub mod rw;
pub mod rw_lease;
pub mod rw_owner;
pub mod rw_turns;
pub mod semaphore;
pub mod setnx;
pub mod shutdown;
pub mod spin;
pub mod takeover;
pub mod waiting;

use std::time::Duration;

use tokio::time::timeout;

pub use self::outcome::{Failed, Outcome};
use crate::bench::{Backend, Bench};

/// One case of the suite.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The name of its function.
    pub name: &'static str,
    /// The rows of `docs/behaviours.md` that it shows.
    pub ids: &'static [&'static str],
}

/// All cases.
pub const CASES: &[Case] = crate::conformance_cases!(conformance_table []);

/// Runs one case on a separate bench, and checks that it ends and leaves nothing behind.
pub async fn run(backend: impl Backend + 'static, case: impl AsyncFnOnce(&Bench) -> Outcome) -> Outcome {
    let bench = Bench::new(backend);
    let done = timeout(LONGEST_CASE, async {
        match case(&bench).await {
            Err(failed) if failed.unsupported().is_some_and(|what| bench.lacks(what)) => {
                println!("not a case for this engine: {failed:?}");
            }
            outcome => outcome?,
        }
        bench.nothing_is_left().await;
        Ok(())
    });
    done.await.expect("a case ends")
}

/// Several times what the slowest case takes in real time.
const LONGEST_CASE: Duration = Duration::from_secs(60);

/// Makes one test of every case, in a module named after the engine.
///
/// `paused` is for engines whose time is tokio's, so that a test clock moves it; all others use `real_time`. The expression makes
/// a [`Backend`](crate::bench::Backend), for each case anew. It is placed in an async function of a separate module: write full
/// paths, and `.await` if need be.
///
/// ```
/// leasehold_testkit::conformance! { memory, paused, leasehold_testkit::bench::Memory::new() }
/// ```
#[macro_export]
macro_rules! conformance {
    ($engine:ident, paused, $backend:expr) => {
        $crate::conformance_cases! { conformance_tests [$engine [tokio::test(start_paused = true)] $backend] }
    };
    ($engine:ident, real_time, $backend:expr) => {
        $crate::conformance_cases! { conformance_tests [$engine [tokio::test] $backend] }
    };
}

/// The list of all cases, handed to the macro `$then` of this crate, by group: `["id", …] => function`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            lock {
                ["LK-01"] => locked_state_follows_the_hold,
                ["LK-07"] => a_handle_can_be_used_again,
                ["HD-01", "CX-13"] => a_second_try_while_held_gets_nothing,
                ["LK-10"] => force_unlock_frees_the_lock_for_everybody,
                ["HD-16"] => dropping_a_guard_gives_the_lock_back,
                ["HD-03"] => lengths_out_of_range_are_refused,
                ["HD-23", "CX-01"] => a_client_needs_a_url_it_knows,
                ["OWN-11"] => a_dropped_guard_can_be_followed_by_a_try,
                ["OWN-12"] => a_dropped_release_releases,
                ["OWN-13"] => all_questions_get_the_same_answer,
            }
            names {
                ["HD-02"] => other_names_are_other_locks,
                ["HD-09", "HD-27"] => names_can_be_almost_anything,
                ["HD-10"] => names_differ_by_case,
                ["HD-21"] => a_namespace_is_a_prefix_of_the_name,
            }
            owner {
                ["LK-03"] => the_owner_holds_from_acquire_to_release,
                ["LK-04"] => another_thread_holds_nothing,
                ["LK-05"] => ownership_follows_the_owner_not_the_handle,
                ["LK-09"] => only_the_owner_can_release,
                ["HD-04"] => a_second_release_is_an_error_and_disturbs_nobody,
                ["OWN-14"] => an_owner_is_known_by_its_printed_form,
                ["OWN-34"] => only_its_own_client_acts_for_an_owner,
                ["OWN-35"] => a_drawn_owner_can_be_named,
                ["OWN-15"] => a_release_in_the_owners_name_ends_its_guard,
            }
            reentry {
                ["LK-08"] => an_owner_enters_again_and_others_stay_out,
                ["RL-02"] => a_partial_release_keeps_the_lease,
                ["OWN-16"] => dropping_an_inner_guard_keeps_the_outer,
                ["OWN-17"] => a_partial_release_does_not_end_the_lease_limit,
                ["OWN-18"] => entering_with_a_lease_sets_the_lease_of_the_whole_hold,
                ["OWN-19"] => a_lost_hold_cannot_be_entered_again,
            }
            lease {
                ["LK-11"] => a_waiter_gets_the_lock_when_the_lease_is_over,
                ["LK-12"] => a_release_after_the_lease_is_an_error,
                ["RL-01", "CX-01"] => the_remaining_time_is_that_of_the_lease_or_the_watchdog,
                ["HD-29"] => the_end_of_a_lease_is_told,
                ["OWN-01"] => a_stale_guard_leaves_the_next_holder_alone,
                ["OWN-02"] => a_stale_guard_leaves_the_next_hold_of_its_owner_alone,
                ["OWN-03"] => the_loss_is_known_before_the_next_grant,
                ["OWN-06"] => max_hold_ends_a_kept_lock,
                ["OWN-07"] => extending_moves_the_end,
                ["OWN-08"] => extending_never_shortens,
                ["OWN-09"] => extending_never_revives,
                ["OWN-10"] => extending_stops_at_max_hold,
                ["OWN-36"] => an_extension_is_not_taken_back,
                ["OWN-37"] => a_waiter_notices_that_the_end_has_come_nearer,
                ["OWN-209"] => the_next_in_line_notices_that_the_end_has_come_nearer,
            }
            renewal {
                ["HD-20", "HD-30", "CX-08"] => a_kept_lock_outlives_its_watchdog_time,
                ["CX-09"] => a_waiter_of_the_same_client_waits_for_the_release,
                ["WD-06", "WD-07"] => nothing_is_renewed_after_the_last_release,
                ["OWN-20"] => a_lock_is_kept_again_after_a_pause,
                ["OWN-21"] => a_guard_may_outlive_its_client_handle,
            }
            loss {
                ["HD-11", "HD-15"] => a_release_is_not_a_loss,
                ["HD-12", "CX-04", "HD-27"] => a_removed_lock_is_lost,
                ["CX-19"] => a_client_goes_on_after_everything_was_removed,
                ["OWN-22"] => a_removed_lock_is_lost_before_its_lease_is_over,
                ["OWN-33"] => a_removed_lock_is_not_touched_when_somebody_else_took_it,
                ["OWN-23"] => everybody_who_listens_hears_of_the_loss,
                ["OWN-24"] => work_stops_when_the_lock_is_lost,
            }
            takeover {
                ["CX-05"] => a_client_can_take_over_from_itself,
                ["CX-06"] => a_client_can_take_over_from_another,
                ["OWN-25"] => a_lock_taken_over_returns_to_the_line,
                ["OWN-26"] => taking_over_a_free_lock_is_taking_it,
            }
            waiting {
                ["HD-05", "HD-28", "HD-27"] => a_wait_ends_when_its_time_is_over,
                ["LK-13"] => a_wait_ends_in_time_on_a_lock_left_behind,
                ["OWN-04"] => waiters_are_served_in_the_order_they_came,
                ["OWN-27"] => a_wait_of_zero_is_one_try,
                ["OWN-28"] => force_unlock_wakes_the_next_waiter,
            }
            cancel {
                ["HD-06"] => a_cancelled_waiter_ends_and_leaves_nothing,
                ["HD-07", "CX-10"] => what_is_dropped_before_it_began_does_nothing,
                ["CX-11", "CX-15"] => waiters_cancelled_together_all_end,
                ["CX-12"] => a_deadline_of_the_caller_ends_the_wait_and_the_hold,
                ["CX-16"] => nothing_is_left_of_a_cancelled_holder_and_waiter,
                ["OWN-05"] => a_cancelled_waiter_passes_its_turn_on,
            }
            contention {
                ["LK-15"] => threads_of_one_client_take_turns,
                ["LK-16", "HD-08"] => a_hundred_clients_take_turns,
                ["LK-17"] => taken_through_one_handle_given_back_through_another,
                ["LK-23"] => many_tasks_on_few_names,
                ["RL-08"] => short_waits_wedge_nothing,
                ["CX-03"] => every_client_gets_through_its_rounds,
                ["CX-14"] => tries_alone_get_there,
            }
            fair {
                ["FL-01"] => a_lease_that_runs_out_keeps_the_order,
                ["FL-02"] => waiters_of_many_clients_are_served_in_the_order_they_came,
                ["FL-03"] => many_waiters_all_get_their_turn,
                ["FL-10"] => a_try_neither_queues_nor_overtakes,
                ["FL-14"] => a_waiter_that_gives_up_leaves_nothing_in_the_queue,
                ["OWN-100"] => who_leaves_the_queue_lets_the_next_one_in,
                ["OWN-101"] => a_waiter_knows_its_place,
                ["OWN-102"] => an_owner_enters_a_fair_lock_again_at_once,
                ["OWN-105"] => a_fair_lock_that_is_not_re_entered_says_so,
                ["OWN-103"] => a_fair_and_a_plain_lock_of_one_name_are_one_lock,
                ["OWN-104"] => force_unlock_lets_the_next_in_the_queue_in,
                ["OWN-106"] => waiters_of_one_owner_all_get_the_lock,
            }
            multi {
                ["ML-01", "ML-05", "ML-08"] => all_members_are_held_and_released_together,
                ["ML-02"] => one_of_many_who_try_gets_all,
                ["ML-04", "ML-07"] => a_member_that_is_busy_leaves_the_others_free,
                ["ML-09"] => a_wait_for_several_lasts_its_whole_time,
                ["ML-10"] => a_wait_for_several_is_for_all_of_them_together,
                ["ML-06"] => a_multi_lock_needs_members_and_each_once,
                ["ML-11"] => the_loss_of_a_member_is_the_loss_of_all,
                ["OWN-110"] => a_multi_lock_that_is_dropped_in_the_middle_leaves_nothing,
                ["OWN-111"] => a_lease_begins_when_the_last_member_is_there,
                ["OWN-112"] => kinds_and_clients_can_be_mixed,
                ["OWN-113"] => those_who_want_some_of_the_same_locks_do_not_wait_in_a_circle,
            }
            group {
                ["FM-01"] => a_set_is_held_and_freed_as_one,
                ["FM-02"] => two_handles_on_a_set_count_for_one_owner,
                ["FM-03"] => sets_are_kept_while_their_guards_live,
                ["FM-04"] => another_owner_does_not_get_a_set_that_is_held,
                ["FM-05"] => a_waiter_gets_a_set_when_the_lease_is_over,
                ["OWN-180"] => sets_with_nothing_in_common_do_not_wait_for_each_other,
                ["OWN-181"] => sets_of_one_owner_are_the_same_or_apart,
                ["OWN-182"] => values_can_be_forced_and_taken_over,
                ["OWN-183"] => cancelled_waiters_for_sets_leave_nothing,
                ["OWN-184"] => overlapping_sets_exclude_each_other,
                ["OWN-185"] => a_set_needs_values_and_each_once,
                ["OWN-186"] => a_set_has_leases_and_limits,
                ["OWN-241"] => a_set_can_have_thousands_of_values,
                ["OWN-242"] => a_set_can_be_tried_for_again_and_again,
            }
            spin {
                ["SP-01"] => a_spinning_waiter_gets_the_lock_after_the_release,
                ["SP-02", "OWN-40"] => a_spinning_wait_with_a_limit_ends_with_the_lock_or_in_time,
                ["SP-04", "SP-05"] => a_try_of_a_spin_lock_does_not_wait,
                ["OWN-41"] => a_spin_lock_is_the_plain_lock_of_that_name,
                ["OWN-42"] => a_spinning_waiter_can_be_cancelled,
                ["OWN-43"] => a_spinning_waiter_is_told_of_a_shutdown,
                ["OWN-44"] => spinning_tasks_take_turns,
            }
            non_reentrant {
                ["NR-01"] => others_wait_for_a_lock_that_is_not_reentrant,
                ["NR-02", "NR-03"] => an_owner_does_not_enter_twice,
                ["NR-04"] => an_owner_is_known_in_every_handle,
                ["OWN-45"] => a_guard_of_a_handle_that_is_not_reentrant_does_not_enter_again,
                ["OWN-46"] => an_owner_whose_lease_is_over_is_not_in,
            }
            fenced {
                ["FE-01", "FE-02", "FE-03", "FE-04"] => tokens_count_from_one_whichever_way_the_lock_is_taken,
                ["OWN-47"] => a_fenced_lock_is_the_plain_lock_of_that_name,
                ["OWN-48"] => every_entry_of_a_fenced_lock_has_a_token_of_its_own,
                ["OWN-49"] => tokens_rise_however_a_hold_ends,
                ["OWN-50"] => tokens_are_in_the_order_of_the_holds,
            }
            setnx {
                ["OWN-53"] => a_setnx_lock_is_held_by_one_and_waited_for,
                ["OWN-54"] => a_setnx_lock_is_not_entered_twice,
                ["OWN-55"] => a_setnx_lock_answers_all_questions,
                ["OWN-56"] => a_setnx_lock_runs_out_and_is_told,
                ["OWN-57"] => a_setnx_lock_is_kept_while_its_guard_lives,
                ["OWN-58"] => a_setnx_lock_that_is_removed_is_lost_and_the_next_is_not_touched,
                ["OWN-59"] => a_setnx_lock_can_be_forced_and_taken_over,
                ["OWN-60"] => a_setnx_lock_has_tokens,
                ["OWN-61"] => waiters_for_a_setnx_lock_can_be_cancelled,
                ["OWN-62"] => tasks_take_turns_with_a_setnx_lock,
                ["OWN-63"] => a_setnx_lock_can_be_extended,
                ["OWN-71"] => a_setnx_lock_can_be_one_of_several,
            }
            semaphore {
                ["HD-24"] => one_client_offers_everything,
                ["SE-01"] => permits_are_set_once,
                ["SE-02"] => a_semaphore_with_a_time_is_forgotten,
                ["SE-03"] => permits_can_be_added,
                ["SE-04"] => permits_can_be_taken_away,
                ["SE-05", "SE-26"] => permits_go_and_come_back,
                ["SE-06", "SE-07"] => giving_back_makes_a_semaphore,
                ["SE-08"] => giving_back_only_where_there_is_one,
                ["SE-10"] => no_permits_are_had_at_once,
                ["SE-11"] => a_waiter_gets_what_is_given_back,
                ["SE-12"] => a_waiter_for_many_waits_for_all_of_them,
                ["SE-15"] => one_permit_excludes_in_one_client,
                ["SE-16", "SE-17"] => one_permit_excludes_among_clients,
                ["SE-18"] => all_and_one_at_random_all_get_there,
                ["SE-21"] => handles_share_what_is_there,
                ["SE-22"] => a_hundred_permits_of_a_long_name,
                ["SE-23"] => as_many_work_at_once_as_there_are_permits,
                ["SE-24"] => what_no_semaphore_can_be_is_refused,
                ["SE-31"] => a_cancelled_waiter_for_permits_passes_its_turn_on,
                ["SE-30"] => a_wait_for_permits_ends_when_its_time_is_over,
                ["OWN-80"] => dropped_permits_are_given_back,
                ["OWN-81"] => forgotten_permits_stay_taken,
                ["OWN-82"] => who_wants_many_is_not_starved,
                ["OWN-83"] => as_many_wake_as_there_are_permits,
                ["OWN-84"] => setting_permits_wakes_those_who_wait,
                ["OWN-85"] => permits_of_a_deleted_semaphore_are_nobodys,
                ["OWN-280"] => permits_of_a_semaphore_that_is_over_are_not_given_to_the_next,
                ["OWN-281"] => permits_come_back_to_a_semaphore_whose_time_was_taken_away,
                ["OWN-86"] => cancellation_racing_with_release_loses_no_permit,
                ["OWN-87"] => permits_can_be_had_by_threads,
            }
            leased_semaphore {
                ["PS-01", "PS-02"] => leased_permits_are_set_once,
                ["PS-03", "PS-04"] => the_number_of_leased_permits_can_be_set_anew,
                ["PS-05"] => leased_permits_can_be_added,
                ["PS-06", "PS-07"] => a_permit_is_had_by_its_id,
                ["PS-08", "PS-09", "PS-11"] => many_permits_are_had_and_given_back_together,
                ["PS-12", "PS-13"] => a_list_of_ids_is_given_back_wholly_or_not_at_all,
                ["PS-14", "PS-21"] => an_unknown_id_is_refused,
                ["PS-15"] => a_permit_whose_lease_is_over_is_not_given_back_twice,
                ["PS-16", "PS-17"] => a_waiter_gets_a_permit_when_its_lease_is_over,
                ["PS-18", "PS-19", "PS-20"] => lapsed_permits_are_counted_as_free,
                ["PS-23"] => the_lease_of_a_permit_can_be_changed,
                ["PS-24"] => the_lease_of_a_permit_can_be_asked_for,
                ["PS-26"] => what_has_lapsed_can_be_taken_again,
                ["PS-28", "PS-30"] => lapsed_ids_in_a_list_change_nothing_but_what_has_lapsed,
                ["PS-32"] => a_waiter_for_two_is_woken_by_the_release_of_one,
                ["PS-33", "PS-34"] => one_leased_permit_excludes,
                ["OWN-200"] => permits_are_kept_while_their_guard_lives,
                ["OWN-201"] => permits_of_a_client_that_is_gone_come_back,
                ["OWN-202"] => a_guard_of_permits_knows_when_their_lease_is_over,
                ["OWN-203"] => dropped_leased_permits_are_given_back,
                ["OWN-204"] => what_is_released_by_id_is_lost_to_its_guard,
                ["OWN-205"] => who_wants_many_leased_permits_is_not_starved,
                ["OWN-206"] => thousands_of_permits_lapse_at_once,
                ["OWN-207"] => cancellation_racing_with_release_loses_no_leased_permit,
                ["OWN-208"] => leased_permits_can_be_had_by_threads,
                ["OWN-240"] => a_shorter_lease_lets_waiters_in_when_it_is_over,
            }
            latch {
                ["CD-01", "CD-02"] => a_count_is_set_once,
                ["CD-03", "CD-04"] => a_latch_counts_down_to_zero_and_no_further,
                ["CD-05"] => a_latch_that_was_never_set_is_open,
                ["CD-06"] => a_wait_for_a_latch_keeps_its_limit,
                ["CD-08", "CD-10", "CD-11"] => all_who_wait_go_on_at_zero,
                ["CD-09", "OWN-90"] => deleting_a_latch_lets_those_go_on_who_wait,
                ["OWN-91"] => a_latch_can_be_waited_for_by_threads,
                ["OWN-92"] => a_shutdown_ends_the_wait_for_a_latch,
            }
            shutdown {
                ["LK-14"] => a_lock_left_behind_runs_out,
                ["CX-17"] => shutdown_ends_every_wait_and_every_hold,
                ["OWN-29"] => shutdown_waits_for_the_guards,
                ["OWN-30"] => shutdown_frees_nothing_under_running_work,
                ["OWN-31"] => work_that_ends_after_shutdown_frees_its_lock,
                ["OWN-38"] => a_waiter_in_line_gets_what_a_shutdown_leaves,
                ["OWN-32"] => a_client_shut_down_refuses_new_locks_and_others_go_on,
            }
            rw {
                ["RW-29"] => many_read_or_one_writes,
                ["RW-03"] => the_write_half_is_free_after_the_last_reader,
                ["RW-04", "RW-05"] => force_unlock_frees_its_own_half_only,
                ["RW-06", "RW-07"] => nobody_reads_while_somebody_else_writes,
                ["RW-25", "RW-32"] => rw_names_can_be_almost_anything,
                ["RW-31"] => rw_lengths_out_of_range_are_refused,
                ["RW-35"] => a_dropped_reader_lets_the_writer_in,
                ["OWN-160"] => readers_never_see_half_of_what_is_written,
                ["OWN-161"] => threads_read_and_write_by_turns,
                ["OWN-162"] => a_writer_can_have_a_token,
                ["OWN-163"] => both_halves_can_be_taken_over,
                ["OWN-178"] => who_takes_over_to_read_lets_readers_in,
                ["OWN-164"] => what_is_removed_is_lost_for_readers_and_writers,
                ["OWN-165"] => shutdown_counts_readers_and_writers,
            }
            rw_lease {
                ["RW-15"] => entering_again_shortens_no_lease,
                ["RW-17"] => a_reader_that_leaves_does_not_prolong_another,
                ["RW-18"] => readers_come_in_when_the_lease_of_a_writer_is_over,
                ["RW-20"] => many_readers_are_kept,
                ["RW-21"] => a_writer_that_reads_is_kept_on_both_halves,
                ["RW-23"] => a_reader_waits_for_no_other_reader,
                ["RW-24"] => a_writer_whose_lease_is_over_has_lost,
                ["RW-34"] => a_reader_is_kept_while_a_writer_waits,
                ["OWN-166"] => a_dead_reader_frees_only_itself,
                ["OWN-167"] => leases_of_readers_do_not_touch_each_other,
            }
            rw_owner {
                ["RW-08"] => a_writer_may_read_too,
                ["RW-09"] => a_writer_that_reads_goes_on_reading,
                ["RW-12"] => a_nested_read_frees_nothing,
                ["RW-13"] => the_halves_are_asked_separately,
                ["OWN-168"] => who_only_reads_cannot_wait_to_write,
                ["OWN-169"] => the_only_reader_can_upgrade,
                ["OWN-170"] => nobody_upgrades_beside_other_readers,
                ["OWN-171"] => a_downgrade_lets_readers_in_and_no_writer,
                ["OWN-172"] => what_was_downgraded_or_upgraded_ends_when_it_would_have,
                ["OWN-173"] => two_acquires_of_one_task_wait_for_each_other,
            }
            rw_turns {
                ["RW-14"] => all_readers_come_in_after_the_writer,
                ["RW-30"] => a_waiting_writer_bars_new_readers_if_told_so,
                ["OWN-174"] => a_preferred_writer_does_not_starve,
                ["OWN-175"] => a_writer_that_gives_up_lets_readers_in,
                ["OWN-176"] => a_writer_that_is_not_heard_of_bars_nobody_for_long,
                ["OWN-177"] => cancelled_readers_and_writers_leave_nothing,
            }
        }
    };
}

/// The list as a table.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_table {
    ([] $($group:ident { $([$($id:literal),+] => $case:ident,)+ })+) => {
        &[$($($crate::conformance::Case { name: stringify!($case), ids: &[$($id),+] },)+)+]
    };
}

/// The list as tests of one engine.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    (
        [$engine:ident $attribute:tt $backend:expr]
        $($group:ident { $([$($id:literal),+] => $case:ident,)+ })+
    ) => {
        mod $engine {
            $($crate::conformance_tests! { @group $attribute $backend; $group $($case)+ })+
        }
    };
    (@group $attribute:tt $backend:expr; $group:ident $($case:ident)+) => {
        mod $group {
            $($crate::conformance_tests! { @case $attribute $backend; $group $case })+
        }
    };
    (@case [$($attribute:tt)+] $backend:expr; $group:ident $case:ident) => {
        #[$($attribute)+]
        async fn $case() -> $crate::conformance::Outcome {
            $crate::conformance::run($backend, $crate::conformance::$group::$case).await
        }
    };
}
