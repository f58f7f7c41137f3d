"""Lines of logs as programs print and write them, a few of each, and the shapes they come in."""

from typing import Final

MMENGINE_TEXT: Final = (
    "2023/01/05 10:11:12 - mmengine - INFO - Epoch(train) [1][  50/586]  lr: 1.9820e-03  "
    "eta: 1:59:48  time: 1.0261  data_time: 0.0183  memory: 7567  loss: 1.5218  "
    "loss_cls: 0.7132  loss_bbox: 0.8086\n"
    "2023/01/05 10:12:03 - mmengine - INFO - Epoch(train) [1][ 550/586]  lr: 3.9840e-03  "
    "eta: 1:58:11  time: 1.0121  data_time: 0.0123  memory: 7567  loss: 1.4218  "
    "loss_cls: 0.6132  loss_bbox: 0.8086\n"
    "2023/01/05 10:20:03 - mmengine - INFO - Epoch(val) [1][ 50/313]  eta: 0:00:48  time: 0.1842  "
    "data_time: 0.0043  memory: 3512\n"
    "2023/01/05 10:21:03 - mmengine - INFO - Epoch(val) [1][313/313]  coco/bbox_mAP: 0.2010  "
    "data_time: 0.0043  time: 0.1842\n"
    "2023/01/05 10:22:03 - mmengine - INFO - Epoch(train) [2][  50/586]  lr: 2.0000e-02  "
    "eta: 1:57:11  time: 1.0121  data_time: 0.0123  memory: 7567  loss: 1.3218  "
    "loss_cls: 0.5132  loss_bbox: 0.8086\n"
    "2023/01/05 10:23:03 - mmengine - INFO - Epoch(train) [2][ 100/586]  lr: 2.0000e-02  "
    "eta: 1:56:11  time: 1.0121  data_time: 0.0123  memory: 7567  loss: 1.2218  "
    "loss_cls: 0.4132  loss_bbox: 0.8086\n"
)
MMCV_JSON: Final = (
    '{"env_info": "sys.platform: linux", "seed": null, "exp_name": "retinanet.py"}\n'
    '{"mode": "train", "epoch": 1, "iter": 50, "lr": 0.00099, "memory": 3999, '
    '"data_time": 0.05, "loss_cls": 1.1, "loss": 2.3125, "time": 0.3}\n'
    '{"mode": "train", "epoch": 1, "iter": 100, "lr": 0.00199, "memory": 3999, '
    '"data_time": 0.05, "loss_cls": 1.0, "loss": 2.1125, "time": 0.3}\n'
    '{"mode": "val", "epoch": 1, "iter": 20, "lr": 0.00199, "loss": 2.5, "bbox_mAP": 0.1}\n'
    '{"mode": "train", "epoch": 2, "iter": 50, "lr": 0.0199, "memory": 3999, '
    '"data_time": 0.05, "loss_cls": 0.9, "loss": 1.9125, "time": 0.3}\n'
    '{"mode": "train", "epoch": 2, "iter": 100, "lr": 0.0199, "memory": 3999, '
    '"data_time": 0.05, "loss_cls": 0.8, "loss": 1.7125, "time": 0.3}\n'
    '{"mode": "val", "epoch": 2, "iter": 20, "lr": 0.0199, "loss": 2.25, "bbox_mAP": 0.2}\n'
)
MMENGINE_JSON: Final = (
    '{"lr": 0.01, "data_time": 0.3, "loss": 6.9, "time": 0.7, "epoch": 1, "iter": 100, '
    '"memory": 5100, "step": 100}\n'
    '{"lr": 0.01, "data_time": 0.3, "loss": 6.5, "time": 0.7, "epoch": 1, "iter": 200, '
    '"memory": 5100, "step": 200}\n'
    '{"accuracy/top1": 12.5, "data_time": 0.02, "time": 0.1, "step": 1}\n'
    '{"lr": 0.01, "data_time": 0.3, "loss": 6.1, "time": 0.7, "epoch": 2, "iter": 300, '
    '"memory": 5100, "step": 300}\n'
    '{"lr": 0.01, "data_time": 0.3, "loss": 5.9, "time": 0.7, "epoch": 2, "iter": 400, '
    '"memory": 5100, "step": 400}\n'
    '{"accuracy/top1": 22.5, "data_time": 0.02, "time": 0.1, "step": 2}\n'
)
PADDLE_DETECTION: Final = (
    "[07/12 10:11:12] ppdet.engine INFO: Epoch: [0] [  0/1000] learning_rate: 0.000333 "
    "loss: 3.512345 loss_cls: 1.1 loss_iou: 0.9 eta: 10:11:12 batch_cost: 0.5 data_cost: 0.01 "
    "ips: 16.1 images/s\n"
    "[07/12 10:12:12] ppdet.engine INFO: Epoch: [0] [980/1000] learning_rate: 0.000400 "
    "loss: 3.412345 loss_cls: 1.0 loss_iou: 0.9 eta: 10:10:12 batch_cost: 0.5 data_cost: 0.01 "
    "ips: 16.1 images/s\n"
    "[07/12 10:20:12] ppdet.engine INFO: Epoch: [1] [  0/1000] learning_rate: 0.000500 "
    "loss: 3.112345 loss_cls: 0.9 loss_iou: 0.8 eta: 10:09:12 batch_cost: 0.5 data_cost: 0.01 "
    "ips: 16.1 images/s\n"
    "[07/12 10:21:12] ppdet.engine INFO: Epoch: [1] [ 20/1000] learning_rate: 0.000500 "
    "loss: 3.012345 loss_cls: 0.8 loss_iou: 0.8 eta: 10:08:12 batch_cost: 0.5 data_cost: 0.01 "
    "ips: 16.1 images/s\n"
)
PADDLE_CLAS: Final = (
    "[2022/05/01 10:11:12] ppcls INFO: [Train][Epoch 1/120][Iter: 0/500]lr(PiecewiseDecay): "
    "0.10000000, top1: 0.00000, top5: 0.00391, CELoss: 7.02312, loss: 7.02312, batch_cost: "
    "1.53s, reader_cost: 1.02, ips: 166.5 samples/s, eta: 1 day, 1:30:00\n"
    "[2022/05/01 10:12:12] ppcls INFO: [Train][Epoch 1/120][Iter: 490/500]lr(PiecewiseDecay): "
    "0.10000000, top1: 0.00071, top5: 0.00391, CELoss: 6.92312, loss: 6.92312, batch_cost: "
    "0.53s, reader_cost: 0.02, ips: 480.5 samples/s, eta: 8:30:00\n"
    "[2022/05/01 10:22:12] ppcls INFO: [Eval][Epoch 1][Iter: 0/100]CELoss: 6.72312, loss: "
    "6.72312, top1: 0.01, top5: 0.05, batch_cost: 0.53s, reader_cost: 0.02, ips: 480.5 images/sec\n"
    "[2022/05/01 10:22:32] ppcls INFO: [Eval][Epoch 1][Iter: 10/100]CELoss: 6.62312, loss: "
    "6.62312, top1: 0.01, top5: 0.05, batch_cost: 0.53s, reader_cost: 0.02, ips: 480.5 images/sec\n"
    "[2022/05/01 10:22:52] ppcls INFO: [Eval][Epoch 1][Iter: 20/100]CELoss: 6.52312, loss: "
    "6.52312, top1: 0.01, top5: 0.05, batch_cost: 0.53s, reader_cost: 0.02, ips: 480.5 images/sec\n"
    "[2022/05/01 10:23:12] ppcls INFO: [Train][Epoch 2/120][Iter: 0/500]lr(PiecewiseDecay): "
    "0.10000000, top1: 0.02000, top5: 0.07391, CELoss: 6.52312, loss: 6.52312, batch_cost: "
    "0.53s, reader_cost: 0.02, ips: 480.5 samples/s, eta: 8:20:00\n"
    "[2022/05/01 10:24:12] ppcls INFO: [Train][Epoch 2/120][Iter: 10/500]lr(PiecewiseDecay): "
    "0.10000000, top1: 0.03000, top5: 0.09391, CELoss: 6.42312, loss: 6.42312, batch_cost: "
    "0.53s, reader_cost: 0.02, ips: 480.5 samples/s, eta: 8:19:00\n"
)
PADDLE_SEG: Final = (
    "2021-07-13 10:11:12 [INFO]\t[TRAIN] epoch: 1, iter: 10/1000, loss: 2.6312, lr: 0.009910, "
    "batch_cost: 0.2711, reader_cost: 0.0011, ips: 14.7531 samples/sec | ETA 00:04:28\n"
    "2021-07-13 10:12:12 [INFO]\t[TRAIN] epoch: 1, iter: 20/1000, loss: 2.1312, lr: 0.009820, "
    "batch_cost: 0.2711, reader_cost: 0.0011, ips: 14.7531 samples/sec | ETA 00:04:25\n"
    "2021-07-13 10:13:12 [INFO]\t[TRAIN] epoch: 2, iter: 30/1000, loss: 1.6312, lr: 0.009730, "
    "batch_cost: 0.2711, reader_cost: 0.0011, ips: 14.7531 samples/sec | ETA 00:04:22\n"
)
CAFFE: Final = (
    "I0512 10:11:12.123456  1234 solver.cpp:330] Iteration 0, Testing net (#0)\n"
    "I0512 10:11:13.123456  1234 solver.cpp:397]     Test net output #0: accuracy = 0.1002\n"
    "I0512 10:11:13.223456  1234 solver.cpp:397]     Test net output #1: loss = 2.40112 (* 1 = "
    "2.40112 loss)\n"
    "I0512 10:11:14.123456  1234 solver.cpp:218] Iteration 0 (0 iter/s, 0.55s/100 iters), "
    "loss = 2.35216\n"
    "I0512 10:11:14.223456  1234 solver.cpp:237]     Train net output #0: loss = 2.35216 (* 1 = "
    "2.35216 loss)\n"
    "I0512 10:11:14.323456  1234 sgd_solver.cpp:105] Iteration 0, lr = 0.01\n"
    "I0512 10:12:14.123456  1234 solver.cpp:218] Iteration 100 (181.2 iter/s, 0.55s/100 iters), "
    "loss = 0.21531\n"
    "I0512 10:12:14.223456  1234 solver.cpp:237]     Train net output #0: loss = 0.2053 (* 1 = "
    "0.2053 loss)\n"
    "I0512 10:12:14.323456  1234 sgd_solver.cpp:105] Iteration 100, lr = 0.00992565\n"
    "I0512 10:13:14.123456  1234 solver.cpp:218] Iteration 200 (181.2 iter/s, 0.55s/100 iters), "
    "loss = 0.145\n"
    "I0512 10:13:14.223456  1234 solver.cpp:237]     Train net output #0: loss = 0.1453 (* 1 = "
    "0.1453 loss)\n"
    "I0512 10:13:14.323456  1234 sgd_solver.cpp:105] Iteration 200, lr = 0.00985258\n"
    "I0512 10:13:15.123456  1234 solver.cpp:330] Iteration 200, Testing net (#0)\n"
    "I0512 10:13:16.123456  1234 solver.cpp:397]     Test net output #0: accuracy = 0.9602\n"
    "I0512 10:13:16.223456  1234 solver.cpp:397]     Test net output #1: loss = 0.12112 (* 1 = "
    "0.12112 loss)\n"
    "I0512 10:14:14.123456  1234 solver.cpp:218] Iteration 300 (181.2 iter/s, 0.55s/100 iters), "
    "loss = 0.1312\n"
    "I0512 10:14:14.323456  1234 sgd_solver.cpp:105] Iteration 300, lr = 0.00978075\n"
    "I0512 10:14:15.123456  1234 solver.cpp:330] Iteration 300, Testing net (#0)\n"
    "I0512 10:14:16.223456  1234 solver.cpp:397]     Test net output #1: loss = 0.11112 (* 1 = "
    "0.11112 loss)\n"
)
TRANSFORMER_XL: Final = (
    "| epoch   1 step      200 |    200 batches | lr 0.00025 | ms/batch 561.23 | loss  6.91 | "
    "ppl  1003.204\n"
    "| epoch   1 step      400 |    400 batches | lr 0.00025 | ms/batch 541.23 | loss  5.91 | "
    "ppl   368.706\n"
    "| epoch   2 step      600 |    100 batches | lr 0.00025 | ms/batch 541.23 | loss  5.41 | "
    "ppl   223.632\n"
    "----------------------------------------------------------------------------------------\n"
    "| Eval   1 at step      600 | time: 120.11s | valid loss  5.31 | valid ppl   202.350\n"
    "----------------------------------------------------------------------------------------\n"
    "| epoch   2 step      800 |    300 batches | lr 0.00024 | ms/batch 541.23 | loss  5.11 | "
    "ppl   165.670\n"
)
MLFLOW_CSV: Final = (
    "Run ID,Name,key,step,timestamp,value\n"
    "0123abcd,bold-owl-1,train_loss,0,1700000000000,2.5\n"
    "0123abcd,bold-owl-1,lr,0,1700000000000,0.1\n"
    "0123abcd,bold-owl-1,train_loss,10,1700000060000,2.25\n"
    "0123abcd,bold-owl-1,lr,10,1700000060000,0.05\n"
    "0123abcd,bold-owl-1,val_loss,10,1700000061000,2.4\n"
)
YOLO_RESULTS_CSV: Final = (
    "                  epoch,      train/box_loss,      train/cls_loss,        val/box_loss,"
    "        val/cls_loss,              lr/pg0\n"
    "                      1,             1.25000,             2.50000,             1.50000,"
    "             2.75000,             0.00332\n"
    "                      2,             1.00000,             2.25000,             1.25000,"
    "             2.50000,             0.00652\n"
)
TENSORBOARD_CSV: Final = (
    "Wall time,Step,Value\n1700000000.25,0,2.5\n1700000010.25,10,2.25\n1700000020.25,20,2.125\n"
)
TWICE_IN_A_FILE: Final = (
    "Epoch [1/2], Step [100/300], Loss: 2.3000\n"
    "Epoch [1/2], Step [200/300], Loss: 2.1000\n"
    "Epoch [1/2], Step [300/300], Loss: 2.0000\n"
    "Epoch [2/2], Step [100/300], Loss: 1.9000\n"
    "Epoch [2/2], Step [200/300], Loss: 1.8000\n"
    "Epoch [1/2], Step [200/300], Loss: 2.2000\n"
    "Epoch [1/2], Step [300/300], Loss: 2.1000\n"
    "Epoch [2/2], Step [100/300], Loss: 1.9500\n"
)
