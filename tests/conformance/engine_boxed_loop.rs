//! The loop whose type says nothing of its model and hooks.

use turnstate::{BoxedAgentLoop, ScriptedModel, Start};

use crate::cast::scripted_model;
use crate::check_engine;
use crate::compare::Observed;
use crate::custom::Msg;
use crate::drive::drive;
use crate::engine_static_loop::loop_config;
use crate::fixture::{Fixture, Request};
use crate::recorder::recorded;
use crate::stage::{Engine, Stage, play};

struct BoxedLoop {
    model: ScriptedModel,
}

impl Engine for BoxedLoop {
    fn run(&mut self, stage: &mut Stage<'_>, start: Start<Msg>) {
        let run = BoxedAgentLoop::boxed(start, loop_config(stage), self.model.clone(), stage.cast.hooks());
        drive(stage, run.unwrap());
    }

    fn requests(self) -> Vec<Request> {
        recorded(&self.model.requests())
    }
}

/// Plays a scenario.
pub(crate) fn run(fixture: &Fixture) -> Observed {
    let model = scripted_model(fixture);
    play(fixture, BoxedLoop { model })
}

#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn conformance_boxed_loop() {
    check_engine(run).unwrap_or_else(|report| panic!("{report}"));
}
